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
_TEXT = "java.lang.String"
_REAL = jpype.JFloat
_TERMS = "com.arcadedb.function.sql.vector.SparseVector"
_RID = "com.arcadedb.database.RID"
_BOUND_RID = "com.arcadedb.database.DatabaseRID"
_RID_SCORE = "com.arcadedb.index.sparsevector.RidScore"
_OF_THREAD = "java.lang.ThreadLocal"
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
        run: Word of this opening of the database, see :data:`.backend.RUN`.
    """

    def __init__(self, database: Any, *, max_bytes: int, run: str) -> None:
        self._database = database
        self._run = run
        self._max_bytes = max_bytes
        self._java = _java()
        self._scored = self._java.scored_in(database)

    def answer(self, asked: IndexSearch, select: Callable[[Statement], Any]) -> dict[str, Any]:
        """Run the searches, and score what any of them finds by every vector and all terms.

        Args:
            asked: The searches.
            select: Returns the Java result set of a statement.

        Returns:
            ``before`` and ``after``, the rows of each lookup; ``now``, in epoch milliseconds;
            ``run``, the word of this opening of the database;
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
        every = (rid for own in found.values() for each in own for rid in each.rids)
        places = {rid: place for place, rid in enumerate(dict.fromkeys(every))}
        rids, records = list(places), self._java.documents.apply(union)
        known = {name: self._scores(asked, name, found, union) for name in asked.compared}
        scores = {
            name: np.array([own.get(rid, np.nan) for rid in rids], np.float32)
            for name, own in known.items()
        }
        rows = self._rows(records, asked.columns)
        first = _first(asked, scores, rows)
        wider = self._java.listed([records.get(place) for place in first])
        return {
            "now": time.time_ns() // 1_000_000,
            "run": self._run,
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
            return scores | self._java.products(rest, by)
        vector, types = self._java.floats(by.numbers), {s.type for s in asked.searches.values()}
        for index in (index for each in types for index in self._indexes(each, by)):
            nearest = index.findNeighborsFromVector(vector, count, count, rest)
            scores |= zip(*self._java.cosines(nearest), strict=True)
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
            found = self._java.documents.apply(cursor)
        else:
            found = self._java.list()
            for each in database.iterateType(lookup.type, True):
                if _has(each.asDocument(), lookup.where):
                    found.add(each.asDocument())
        if lookup.unless and found.size() == 1 and _has(found.get(0), lookup.unless):
            return None
        return self._rows(found, lookup.columns)

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
        if not columns or documents.isEmpty():
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
            lists.append(self._scored(found))
        return self._best(lists, limit)

    def _best(self, lists: Sequence[Ranked], limit: int) -> Ranked:
        """Return the best of the lists of all buckets of a type."""
        if len(lists) == 1:
            return lists[0]
        found = (o for e in lists for o in zip(e.scores, e.rids, e.records, strict=True))
        best = sorted(found, key=lambda one: -one[0])[:limit]
        records = self._java.listed([record for *_, record in best])
        return Ranked(records, [rid for _, rid, _ in best], [score for score, *_ in best])

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
    """Java functions composed of method handles, so that a call of one is the only one to Java."""

    def __init__(self) -> None:
        self.set = jpype.JClass("java.util.LinkedHashSet")
        self.list = jpype.JClass("java.util.ArrayList")
        self.floats = jpype.JArray(jpype.JFloat)
        self.integers = jpype.JArray(jpype.JInt)
        self.strings = jpype.JArray(jpype.JString)
        self.objects = jpype.JArray(jpype.JObject)
        self.dense, self.sparse = jpype.JClass(_DENSE), jpype.JClass(_SPARSE)
        self._arrays = jpype.JClass("java.util.Arrays")
        self._kind = jpype.JClass("java.util.function.Function")
        self.same = self._kind.identity()
        collectors = jpype.JClass("java.util.stream.Collectors")
        self.to_set = collectors.toSet()
        self._to_list, self._joining = collectors.toList(), collectors.joining(",")
        self._handles = jpype.JClass("java.lang.invoke.MethodHandles")
        self._public = self._handles.publicLookup()
        self._type = jpype.JClass("java.lang.invoke.MethodType").methodType
        self._proxies = jpype.JClass("java.lang.invoke.MethodHandleProxies")
        self._terms = jpype.JClass(_TERMS)
        self._utf8 = jpype.JClass("java.nio.charset.StandardCharsets").UTF_8
        self._products_of = lru_cache(_KEPT)(self._products)
        self._rows_of = lru_cache(_KEPT)(self._rows)
        pair, result = "com.arcadedb.utility.Pair", "com.arcadedb.query.sql.executor.Result"
        optional = "java.util.Optional"
        self._document = self._method("com.arcadedb.database.Identifiable", "asDocument", _DOCUMENT)
        self.documents = self._each(self._document, self._to_list)
        second = self._method(pair, "getSecond", _ANYTHING)
        distance = self._chain(second, self._method("java.lang.Number", "floatValue", _REAL))
        first = self._method(pair, "getFirst", _ANYTHING)
        self._near = self._each(first, self._to_list), self._texts(first, distance)
        found, id_ = self._method(result, "getIdentity", optional), (optional, "get", _ANYTHING)
        self.identity = self._called(self._chain(found, self._method(*id_)))

    def neighbours(self, pairs: Any) -> Ranked:
        """Return pairs of record id and distance with cosines."""
        return Ranked(self._near[0].apply(pairs), *self.cosines(pairs))

    def cosines(self, pairs: Any) -> tuple[list[str], list[float]]:
        """Return the record ids and cosines of pairs of record id and distance."""
        rids, distances = _columns(self._near[1].apply(pairs))
        return rids, (np.float32(1) - np.array(distances, np.float32)).tolist()

    def scored_in(self, database: Any) -> Callable[[Any], Ranked]:
        """Return the function of the answer of a sparse index of a database.

        Such an index returns record ids without a database, whose records would be read from
        whichever one the thread uses. So each is replaced by an id of the database.
        """
        bare = self._method(_RID_SCORE, "rid", _RID)
        bound = self._made(_BOUND_RID, "com.arcadedb.database.BasicDatabase", _RID).bindTo(database)
        rid, score = self._chain(bare, bound), self._method(_RID_SCORE, "score", _REAL)
        rids, texts = self._each(rid, self._to_list), self._texts(rid, score)
        return lambda ranked: Ranked(rids.apply(ranked), *_columns(texts.apply(ranked)))

    def products(self, rids: Any, by: Compared) -> dict[str, float]:
        """Return the dot products of the terms of documents with some, as the SQL function does."""
        held, texts = self._products_of(tuple(by.properties))
        held.set(self._terms(self.integers(by.ids), self.floats(by.weights)))
        return dict(zip(*_columns(texts.apply(rids)), strict=True))

    def json(self, documents: Any, columns: Sequence[str]) -> bytes:
        """Return the values of properties of documents as a JSON array of arrays."""
        return b"[%b]" % bytes(self._rows_of(tuple(columns)).apply(documents))

    def listed(self, items: list[Any]) -> Any:
        """Return a Java list of some objects."""
        return self._arrays.asList(self.objects(items))

    # Functions

    def _texts(self, rid: Any, number: Any) -> Any:
        """Return the function of items for a text of :func:`_columns`.

        Args:
            rid: Handle from an item to its record id.
            number: Handle from an item to a float.
        """
        concat = self._method(_TEXT, "concat", _TEXT, _TEXT)
        after_space = concat.bindTo(jpype.JString(" "))
        written = self._method(_TEXT, "valueOf", _TEXT, _REAL, static=True)
        shown = self._chain(rid, self._method(_ANYTHING, "toString", _TEXT))
        both = self._of_one(concat, [shown, self._chain(number, written, after_space)])
        return self._each(both, self._joining)

    def _products(self, properties: Sequence[str]) -> tuple[Any, Any]:
        """Return a variable of threads, and the function of record ids for products with its value.

        A function made for each call, or each thread, would hardly ever be compiled.
        """
        held, made = jpype.JClass(_OF_THREAD)(), self._made(_TERMS, self.integers, self.floats)
        terms = self._of_document(made, properties)
        other = self._method(_OF_THREAD, "get", _ANYTHING).bindTo(held)
        other = other.asType(self._type(self._terms.class_))
        dot = self._method(_TERMS, "dotProduct", _REAL, _TERMS)
        product = self._chain(self._document, terms, self._handles.collectArguments(dot, 1, other))
        return held, self._texts(self._handles.identity(_class(_ANYTHING)), product)

    def _rows(self, columns: Sequence[str]) -> Any:
        """Return the function of documents for the JSON arrays of some properties in UTF-8."""
        made = self._made("com.arcadedb.serializer.json.JSONArray", self.objects)
        row = self._of_document(made.asCollector(_class(self.objects), len(columns)), columns)
        charset, block = "java.nio.charset.Charset", jpype.JArray(jpype.JByte)
        encoded = self._with(self._method(_TEXT, "getBytes", block, charset), self._utf8)
        text = self._chain(row, self._method(_ANYTHING, "toString", _TEXT))
        return self._each(text, self._joining, encoded)

    def _each(self, item: Any, collector: Any, *further: Any) -> Any:
        """Return the function that applies a handle to each of some items and collects that."""
        stream, split, flag = "java.util.stream.Stream", "java.util.Spliterator", jpype.JBoolean
        support = "java.util.stream.StreamSupport"
        streams = self._method(support, "stream", stream, split, flag, static=True)
        mapped = self._method(stream, "map", stream, self._kind)
        collected = self._method(stream, "collect", _ANYTHING, "java.util.stream.Collector")
        steps = (
            self._method("java.lang.Iterable", "spliterator", split),
            self._with(streams, flag(False)),
            self._with(mapped, self._called(item)),
            self._with(collected, collector),
        )
        return self._called(self._chain(*steps, *further))

    # Handles

    def _of_document(self, made: Any, properties: Sequence[str]) -> Any:
        """Return a handle whose arguments are values as one that takes the document with them."""
        get = self._method(_DOCUMENT, "get", _ANYTHING, _TEXT)
        return self._of_one(made, [self._with(get, name) for name in properties])

    def _of_one(self, made: Any, parts: Sequence[Any]) -> Any:
        """Return a handle of several arguments as one of one, of which the parts make them."""
        one, type_ = _class(_ANYTHING), made.type()
        pairs = zip(parts, type_.parameterList(), strict=True)
        taken = [part.asType(self._type(kind, one)) for part, kind in pairs]
        filtered = self._handles.filterArguments(made, 0, taken)
        same = self.integers([0] * len(parts))
        return self._handles.permuteArguments(filtered, self._type(type_.returnType(), one), same)

    def _with(self, handle: Any, second: Any) -> Any:
        """Return a handle with its second argument given."""
        return self._handles.insertArguments(handle, 1, self.objects([second]))

    def _chain(self, first: Any, *further: Any) -> Any:
        """Return a handle that passes the result of each handle to the next one."""
        for each in further:
            taken = first.type().changeReturnType(each.type().parameterType(0))
            first = self._handles.filterReturnValue(first.asType(taken), each)
        return first

    def _made(self, owner: str, *parameters: Any) -> Any:
        """Return the handle of the constructor of a class."""
        nothing = jpype.JClass("java.lang.Void").TYPE
        found = self._type(nothing, self.list(list(map(_class, parameters))))
        return self._public.findConstructor(jpype.JClass(owner), found)

    def _method(self, owner: str, name: str, *types: Any, static: bool = False) -> Any:
        """Return the handle of a method, given the types of its result and parameters."""
        returned, *parameters = map(_class, types)
        find = self._public.findStatic if static else self._public.findVirtual
        return find(jpype.JClass(owner), name, self._type(returned, self.list(parameters)))

    def _called(self, handle: Any) -> Any:
        """Return a handle as a Java ``Function``."""
        anything = _class(_ANYTHING)
        typed = handle.asType(self._type(anything, anything))
        return self._proxies.asInterfaceInstance(self._kind.class_, typed)


def _class(name: Any) -> Any:
    """Return the Java object of a class, or of the class with a name."""
    return (jpype.JClass(name) if isinstance(name, str) else name).class_


def _columns(text: Any) -> tuple[list[str], list[float]]:
    """Return the columns of a Java text: record id, space and number of each item, after commas."""
    words = str(text).replace(",", " ").split()
    return words[::2], list(map(float, words[1::2]))


_java = cache(_Java)
