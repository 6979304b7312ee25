"""Searches of the vector and sparse indexes of types, without SQL.

The SQL functions that search an index copy every property of each record that they find, twice. An
index itself returns record ids and scores, which costs a fraction. So here the lists come from the
indexes, and of the records in any list only the wanted columns are read, each once.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from threading import get_ident
from typing import Any, NamedTuple

import jpype
import numpy as np
import numpy.typing as npt

from kadi_client.messages import Raw, decode
from kadi_localnet.database.backend import DatabaseError, Statement, too_many_bytes
from kadi_localnet.database.search_input import Compared, IndexSearch, Lookup, OneIndex

Floats = npt.NDArray[np.float32]

_SPARSE = "com.arcadedb.index.sparsevector.LSMSparseVectorIndex"
_DENSE = "com.arcadedb.index.vector.LSMVectorIndex"
_DOCUMENT = "com.arcadedb.database.Document"
_ANYTHING = "java.lang.Object"
_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_KEPT = 256
"""Properties whose function is kept."""


class Ranked(NamedTuple):
    """Records that an index found, best first."""

    records: Any
    """Java list of their ids."""
    rids: Sequence[str]
    scores: Sequence[float]


class IndexSearcher:
    """Searches the indexes of one database.

    Args:
        database: The database.
        max_bytes: Maximum size of the columns of an answer as JSON.
    """

    def __init__(self, database: Any, *, max_bytes: int) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._java = _java()

    def answer(self, asked: IndexSearch, select: Callable[[Statement], Any]) -> dict[str, Any]:
        """Run the searches, and score what any of them finds by every vector and all terms.

        Args:
            asked: The searches.
            select: Returns the Java result set of a statement.

        Returns:
            ``before`` and ``after``, the rows of each lookup; ``now``, in epoch milliseconds;
            ``rids``, the records in any list; ``rows``, their columns; ``lists``, by search and
            limit the places of its records among these, best first; ``scores`` of all by the name
            of what they were compared with, a base64 block of float32 with NaN where there is none;
            and ``ahead``, the ``places`` of the first ones and ``rows`` of further columns.

        Raises:
            DatabaseError: if there is no such index, or the answer is too large.
        """
        before = [self._looked_up(each) for each in asked.before]
        found = self._found(asked, select)
        union = self._java.set()
        for own in found.values():
            for each in own:
                union.addAll(each.records)
        rids, records = self._java.texts(union), self._java.documents(union)
        places = {rid: place for place, rid in enumerate(rids)}
        known = {name: self._scores(asked, name, found, union) for name in asked.compared}
        scores = {
            name: np.array([own.get(rid, np.nan) for rid in rids], np.float32)
            for name, own in known.items()
        }
        rows = self._rows(records, asked.columns)
        first = _first(asked, scores, rows)
        wider = self._java.list([records.get(place) for place in first])
        return {
            "now": time.time_ns() // 1_000_000,
            "before": before,
            "rids": rids,
            "rows": rows,
            "lists": {
                name: [[places[rid] for rid in each.rids] for each in own]
                for name, own in found.items()
            },
            "scores": {by: b64encode(each.tobytes()).decode() for by, each in scores.items()},
            "ahead": {"places": first, "rows": self._rows(wider, asked.ahead)},
            "after": [self._looked_up(each) for each in asked.after],
        }

    def _scores(
        self, asked: IndexSearch, name: str, found: Mapping[str, Sequence[Ranked]], union: Any
    ) -> dict[str, float]:
        """Return the scores of all records by a vector or terms; of the first list that has it."""
        lists = [own[::-1] for search, own in found.items() if asked.searches[search].by == name]
        scores: dict[str, float] = {}
        for each in chain.from_iterable(lists):
            scores |= zip(each.rids, each.scores, strict=True)
        if not (count := union.size() - len(scores)):
            return scores
        by, rest = asked.compared[name], self._java.set(union)
        for each in chain.from_iterable(lists):
            rest.removeAll(each.records)
        if by.vector is None:
            products = self._java.products(self._java.documents(rest), by)
            scores |= zip(self._java.texts(rest), products, strict=True)
        else:
            vector, types = self._java.floats(by.numbers), {s.type for s in asked.searches.values()}
            for index in (index for each in types for index in self._indexes(each, by)):
                nearest = index.findNeighborsFromVector(vector, count, count, rest)
                compared = self._java.neighbours(nearest)
                scores |= zip(compared.rids, compared.scores, strict=True)
        return scores

    def _found(
        self, asked: IndexSearch, select: Callable[[Statement], Any]
    ) -> dict[str, list[Ranked]]:
        """Return the lists of each search, one for each limit."""
        allowed: dict[str, Any] = {}
        found = {}
        for name, search in asked.searches.items():
            among = None
            if (condition := condition_of(asked, search)) is not None:
                if condition.text not in allowed:
                    allowed[condition.text] = self._allowed(select(condition))
                among = allowed[condition.text]
            by = asked.compared[search.by]
            found[name] = [self._ranked(search, by, limit, among) for limit in search.limits]
        return found

    def _looked_up(self, lookup: Lookup) -> Raw | None:
        """Return columns of the records of a type with some values, found by an index if possible.

        ``None`` if there is one, and nothing of it has changed.
        """
        database, names = self._database, list(lookup.where)
        if database.getSchema().existsIndex(f"{lookup.type}[{','.join(names)}]"):
            values = self._java.objects(list(lookup.where.values()))
            cursor = database.lookupByKey(lookup.type, self._java.strings(names), values)
            found = [each.asDocument() for each in cursor]
        else:
            found = [each.asDocument() for each in database.iterateType(lookup.type, True)]
            found = [each for each in found if _has(each, lookup.where)]
        if lookup.unless and len(found) == 1 and _has(found[0], lookup.unless):
            return None
        return self._rows(self._java.list(found), lookup.columns) if found else Raw(b"[]")

    def _allowed(self, results: Any) -> Any:
        """Return the record ids of a result set as a Java set, and close it."""
        try:
            return results.stream().map(self._java.identity).collect(self._java.to_set)
        finally:
            results.close()

    def _rows(self, documents: Any, columns: Sequence[str]) -> Raw:
        """Return a JSON array with an array of the columns of each document; absent ones are null.

        Raises:
            DatabaseError: if it is too large.
        """
        if not columns:
            return Raw(b"[]")
        rows = self._java.json(documents, columns)
        if len(rows) > self._max_bytes:
            raise too_many_bytes(self._max_bytes, "")
        return Raw(rows)

    def _ranked(self, search: OneIndex, by: Compared, limit: int, allowed: Any) -> Ranked:
        if allowed is not None and allowed.isEmpty():  # to the engine, an empty set allows all
            return Ranked(self._java.list(), (), ())
        indexes = self._indexes(search.type, by)
        if by.vector is not None:
            near = self._java.floats(by.numbers), limit, max(search.beam, limit), allowed
            pairs = [index.findNeighborsFromVector(*near) for index in indexes]
            return self._best(list(map(self._java.neighbours, pairs)), limit)
        heavy, lists = (self._java.integers(by.ids), self._java.floats(by.weights), limit), []
        for index in indexes:
            found = index.topK(*heavy, allowed)
            if allowed is not None and found.size() < limit:
                # It takes some multiple of the limit from the whole index and drops what is not
                # allowed. In groups, here of one record each, it searches among the allowed; that
                # costs more, and is not needed if the list is full.
                found = index.topKGrouped(*heavy, 1, allowed, self._java.same)
            lists.append(self._java.scored(found))
        return self._best(lists, limit)

    def _best(self, lists: Sequence[Ranked], limit: int) -> Ranked:
        """Return the best of the lists of all buckets of a type."""
        if len(lists) == 1:
            return lists[0]
        pairs = (pair for each in lists for pair in zip(each.scores, each.records, strict=True))
        best = sorted(pairs, key=lambda pair: -pair[0])[:limit]
        kept = self._java.list([record for _, record in best])
        return Ranked(kept, self._java.texts(kept), [score for score, _ in best])

    def _indexes(self, type_name: str, by: Compared) -> list[Any]:
        """Return the indexes of the buckets of a type.

        Raises:
            DatabaseError: if there is none of that kind.
        """
        schema, name = self._database.getSchema(), f"{type_name}[{','.join(by.properties)}]"
        kind, own = self._java.sparse if by.vector is None else self._java.dense, ()
        if schema.existsIndex(name):
            own = schema.getIndexByName(name).getIndexesOnBuckets()
        else:
            schema.getType(type_name)  # says that there is none, in the words of a statement
        if not own or not all(isinstance(each, kind) for each in own):
            named = "sparse" if by.vector is None else "vector"
            raise DatabaseError(f"{name} is no {named} index: create it, or name the one there is")
        return list(own)


def condition_of(asked: IndexSearch, search: OneIndex) -> Statement | None:
    """Return the statement that selects the records to search; ``None`` for all."""
    if search.where is None:
        return None
    text = f"SELECT FROM `{search.type}` WHERE {search.where}"
    return Statement(text, params=asked.params)


def _has(document: Any, values: Mapping[str, Any]) -> bool:
    return all(document.get(name) == value for name, value in values.items())


def _first(asked: IndexSearch, scores: Mapping[str, Floats], rows: Raw) -> list[int]:
    """Return the places of the first records by each of the orders.

    Equal ones are in the order of their rows.
    """
    found: dict[int, None] = {}
    records = decode(rows) if asked.orders and asked.first else []
    for order in asked.orders if records else ():
        sums = np.zeros(len(records))
        for by, (weight, half) in order.items():
            known = np.where(np.isnan(scores[by]), 0.0, scores[by])
            sums += weight * (known / (known + half) if half else known)
        least = np.sort(sums)[-asked.first :][0]
        near = np.flatnonzero(sums >= least).tolist()  # only their rows decide between equal ones
        ranked = sorted((-sums[place], str(records[place]), place) for place in near)
        found |= {place: None for _, _, place in ranked[: asked.first]}
    return list(found)


class _Java:
    """Java functions composed of method handles, which run without a call to Python for each."""

    def __init__(self) -> None:
        self.set = jpype.JClass("java.util.LinkedHashSet")
        self.list = jpype.JClass("java.util.ArrayList")
        self.floats = jpype.JArray(jpype.JFloat)
        self.integers = jpype.JArray(jpype.JInt)
        self.strings = jpype.JArray(jpype.JString)
        self.objects = jpype.JArray(jpype.JObject)
        self.dense, self.sparse = jpype.JClass(_DENSE), jpype.JClass(_SPARSE)
        self.same = jpype.JClass("java.util.function.Function").identity()
        collectors = jpype.JClass("java.util.stream.Collectors")
        self.to_set = collectors.toSet()
        self._to_list, self._joining = collectors.toList(), collectors.joining(",")
        self._handles = jpype.JClass("java.lang.invoke.MethodHandles")
        self._type = jpype.JClass("java.lang.invoke.MethodType").methodType
        self._proxies = jpype.JClass("java.lang.invoke.MethodHandleProxies")
        rid, pair = "com.arcadedb.database.RID", "com.arcadedb.utility.Pair"
        ranked = "com.arcadedb.index.sparsevector.RidScore"
        result, optional = "com.arcadedb.query.sql.executor.Result", "java.util.Optional"
        real = jpype.JFloat.class_
        sparse = "com.arcadedb.function.sql.vector.SparseVector"
        self._sparse = jpype.JClass(sparse)
        self._dot = self._virtual(sparse, "dotProduct", real, self._sparse.class_)
        self._product_of = lru_cache(_KEPT)(self._product)
        self._row_of = lru_cache(_KEPT)(self._row)
        self._utf8 = jpype.JClass("java.nio.charset.StandardCharsets").UTF_8
        self._document_of = self._function((rid, "asDocument", _DOCUMENT))
        self._text_of = self._function((rid, "toString", "java.lang.String"))
        self._first_of = self._function((pair, "getFirst", _ANYTHING))
        self._second_of = self._function(
            (pair, "getSecond", _ANYTHING), ("java.lang.Number", "floatValue", real), number=True
        )
        self._rid_of = self._function((ranked, "rid", rid))
        self._score_of = self._function((ranked, "score", real), number=True)
        self.identity = self._function(
            (result, "getIdentity", optional), (optional, "get", _ANYTHING)
        )

    def texts(self, rids: Any) -> list[str]:
        """Return record ids as texts."""
        joined = str(rids.stream().map(self._text_of).collect(self._joining))
        return joined.split(",") if joined else []

    def neighbours(self, pairs: Any) -> Ranked:
        """Return pairs of record id and distance with cosines."""
        found = self._ranked(pairs, self._first_of, self._second_of)
        return found._replace(scores=(np.float32(1) - np.array(found.scores, np.float32)).tolist())

    def scored(self, ranked: Any) -> Ranked:
        """Return the answer of a sparse index."""
        return self._ranked(ranked, self._rid_of, self._score_of)

    def _ranked(self, found: Any, record_of: Any, score_of: Any) -> Ranked:
        records = found.stream().map(record_of).collect(self._to_list)
        return Ranked(records, self.texts(records), self._numbers(found, score_of))

    def _numbers(self, items: Any, number_of: Any) -> list[float]:
        numbers: list[float] = np.array(items.stream().mapToDouble(number_of).toArray()).tolist()
        return numbers

    def products(self, documents: Any, by: Compared) -> list[float]:
        """Return the dot products of the terms of documents with some, as the SQL function does."""
        held, product = self._product_of(tuple(by.properties), get_ident())
        held.set(self._sparse(self.integers(by.ids), self.floats(by.weights)))
        return self._numbers(documents, product)

    def _product(self, properties: Sequence[str], _thread: int) -> tuple[Any, Any]:
        """Return a reference, and the function from a document to the product with what it holds.

        Each thread has its own. One made for each call would never be compiled.
        """
        held = jpype.JClass(_REFERENCE)()
        get = self._virtual(_REFERENCE, "get", _ANYTHING).bindTo(held)
        terms = get.asType(self._type(self._sparse.class_))
        product = self._handles.collectArguments(self._dot, 1, terms)
        return held, self._function(self._sparse_vector(properties), product, number=True)

    def _sparse_vector(self, properties: Sequence[str]) -> Any:
        """Return the handle from a document to its sparse vector."""
        arrays = self.integers.class_, self.floats.class_
        return self._of_document(self._constructor(self._sparse, *arrays), properties)

    def documents(self, rids: Any) -> Any:
        """Return a list of the documents with these record ids."""
        return rids.stream().map(self._document_of).collect(self._to_list)

    def json(self, documents: Any, columns: Sequence[str]) -> bytes:
        """Return the values of properties of documents as a JSON array of arrays."""
        rows = documents.stream().map(self._row_of(tuple(columns))).collect(self._joining)
        return b"[%b]" % bytes(rows.getBytes(self._utf8))

    def _row(self, columns: Sequence[str]) -> Any:
        """Return the function from a document to the JSON array of some properties."""
        array, values = "com.arcadedb.serializer.json.JSONArray", self.objects.class_
        made = self._constructor(jpype.JClass(array), values).asCollector(values, len(columns))
        text = (array, "toString", "java.lang.String")
        return self._function(self._of_document(made, columns), text)

    def _of_document(self, made: Any, properties: Sequence[str]) -> Any:
        """Return a handle whose arguments are values as one that takes the document with them."""
        document, text = jpype.JClass(_DOCUMENT).class_, jpype.JClass("java.lang.String").class_
        get = self._virtual(_DOCUMENT, "get", _ANYTHING, text)
        parts = [
            self._handles.insertArguments(get, 1, self.objects([name])).asType(
                self._type(made.type().parameterType(place), document)
            )
            for place, name in enumerate(properties)
        ]
        return self._handles.permuteArguments(
            self._handles.filterArguments(made, 0, parts),
            self._type(made.type().returnType(), document),
            self.integers([0] * len(parts)),
        )

    def _constructor(self, owner: Any, *parameters: Any) -> Any:
        nothing = jpype.JClass("java.lang.Void").TYPE
        found = self._type(nothing, self.list(list(parameters)))
        return self._handles.publicLookup().findConstructor(owner, found)

    def _virtual(self, owner: str, method: str, returned: Any, *parameters: Any) -> Any:
        result = jpype.JClass(returned).class_ if isinstance(returned, str) else returned
        found = self._type(result, self.list(list(parameters)))
        return self._handles.publicLookup().findVirtual(jpype.JClass(owner), method, found)

    def _function(self, *steps: Any, number: bool = False) -> Any:
        """Return the composition of handles, or of methods without parameters, as a function.

        That is a Java ``Function``, or a ``ToDoubleFunction`` if it returns a ``number``.
        """
        handles = [self._virtual(*each) if isinstance(each, tuple) else each for each in steps]
        composed = handles[0]
        for each in handles[1:]:
            taken = composed.type().changeReturnType(each.type().parameterType(0))
            composed = self._handles.filterReturnValue(composed.asType(taken), each)
        kind = "java.util.function.ToDoubleFunction" if number else "java.util.function.Function"
        anything = jpype.JClass(_ANYTHING).class_
        returned = jpype.JDouble.class_ if number else anything
        return self._proxies.asInterfaceInstance(
            jpype.JClass(kind).class_, composed.asType(self._type(returned, anything))
        )


_java = cache(_Java)
