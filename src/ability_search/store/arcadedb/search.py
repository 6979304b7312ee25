"""Statements on candidates, hits and neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from ability_search.documents import SparseVector
from ability_search.filters.tree import Filter
from ability_search.store.arcadedb.commit_visibility import NOTES
from ability_search.store.arcadedb.core import Predicate, Statement, kind_type, rows_together
from ability_search.store.arcadedb.filter_sql import to_sql
from ability_search.store.arcadedb.rows import CHUNK_COLUMNS, SPARE, shorter
from ability_search.store.records import (
    VALUE_LENGTH,
    Search,
    TermSearch,
    VectorSearch,
    metadata_key,
)
from ability_search.store.values import Columns

_NO_COLUMNS = Columns()
_COLLECTION = "SELECT FROM Collection WHERE key = :name"

# The comparison refuses to be without one, and asking for the embedding itself reads it twice.
_HAS_EMBEDDING = "duplicateOf IS NULL"

_TERMS = "`vector.sparseCreate`(terms, weights)"
_SPARE_TERMS = "`vector.sparseCreate`(spareTerms, spareWeights)"
COPIES = "Copies"
"""Suffix of the name of a search, for the duplicates that it finds."""

_PREFIXES = "fghijkl"
"""Prefixes of the parameters of the first filters in one statement."""


@dataclass(frozen=True, slots=True)
class ColumnSql:
    """Columns of chunks as SQL expressions, with the parameters that they bind."""

    columns: Columns = field(default_factory=Columns)
    shared: Mapping[str, str] = field(default_factory=dict)
    """Names of parameters, bound elsewhere, that hold the vectors of these columns; of products,
    without the ends ``_i`` and ``_w`` of those with the ids and the weights."""
    spare: bool = False
    """Whether the chunks are duplicates."""

    def value(self, column: str, *, terms: str = _TERMS) -> str:
        """Return the expression of a column; ``terms`` is that of the chunk's sparse vector."""
        if column in self.columns.cosines:
            vector = SPARE["embedding"] if self.spare else "embedding"
            return f"vectorCosineSimilarity({vector}, :{self.shared.get(column, f'{column}_v')})"
        if column in self.columns.products:
            name = self.shared.get(column, f"{column}_d")
            return f"vectorSparseDot({terms}, `vector.sparseCreate`(:{name}_i, :{name}_w))"
        return column

    def text(self, *, but: Sequence[float] | SparseVector | None = None) -> str:
        """Return the columns as they follow others, without that of the vector or terms ``but``.

        The query needs :attr:`variables`, too.
        """
        by_column = {**self.columns.products, **self.columns.cosines}
        computed = [name for name, by in by_column.items() if by is not but]
        names = [name for name in self.columns.fields if metadata_key(name) is None]
        fields = [CHUNK_COLUMNS.get(name, name) for name in names]
        if self.spare:
            fields = [f"{SPARE[name]} AS {name}" if name in SPARE else name for name in fields]
        values = ((f"metadata[:{name}_k]", name) for name in metadata_names(self.columns))
        return "".join(
            [
                *(f", {name}" for name in fields),
                *(f", {shorter(value, VALUE_LENGTH)} AS {name}" for value, name in values),
                *(f", {self.value(name, terms='$terms')} AS {name}" for name in computed),
            ]
        )

    @property
    def variables(self) -> str:
        """Return what is computed once for each row, as it follows the target of the query."""
        terms = _SPARE_TERMS if self.spare else _TERMS
        return f" LET $terms = {terms}" if self.columns.products else ""

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters that the columns bind."""
        cosines = self.columns.cosines
        bound: dict[str, Any] = {
            f"{name}_v": list(by) for name, by in cosines.items() if name not in self.shared
        }
        bound |= {f"{name}_k": key for name, key in metadata_names(self.columns).items()}
        for name, terms in self.columns.products.items():
            if name not in self.shared:
                bound |= {f"{name}_d_i": list(terms.ids), f"{name}_d_w": list(terms.weights)}
        return bound


def metadata_names(columns: Columns) -> dict[str, str]:
    """Return the keys of metadata among columns, by the names of their values in rows."""
    keys = filter(None, map(metadata_key, columns.fields))
    return {f"metadata{place}": key for place, key in enumerate(keys)}


def candidates(
    name: str,
    chunk_type: str,
    searches: Sequence[Search],
    columns: Columns = _NO_COLUMNS,
    *,
    first: int = 0,
) -> Statement:
    """Run all searches in one round trip: identifiers, scores and requested columns.

    Args:
        name: The collection.
        chunk_type: The generation to search.
        searches: Each with a name of its own.
        columns: Columns of every row; those of a search by a vector are without the cosine to it,
            which is their score.
        first: Number of rows of each search for which ``rid, terms, weights, embedding`` are
            returned, too.

    Returns one map: ``collection`` (its record as it was before), ``unindexed`` (a row if a commit
    was being indexed then), ``later`` (its revision after the searches) and, by the names of the
    :func:`steps` of each search, rows ``rid, chunkId, score`` and the columns, best first; by
    ``first_`` and the name of the search the further columns. The duplicates that it finds are
    apart, by its name and :data:`COPIES`.
    """
    queries = {"collection": _COLLECTION, "unindexed": NOTES}
    answer = ["collection", "unindexed"]
    narrower: dict[str, str] = {}
    shown = _sharing(columns, searches)
    params: dict[str, Any] = {"name": name, "type": chunk_type, **shown.params}
    predicates = _predicates(searches)
    allowed = _allowed(searches, chunk_type, predicates)
    for (searched, text), rids in allowed.items():
        queries[rids] = f"SELECT @rid FROM `{searched}` WHERE {text}"
    for search in searches:
        searched = _type_of(search, chunk_type)
        predicate = None if search.filter is None else predicates[search.filter]
        params |= predicate.params if predicate else {}
        rids = allowed.get((searched, predicate.text), "") if predicate else ""
        if isinstance(search, VectorSearch):
            params[f"{search.name}_v"] = list(search.vector)
            further = shown.text(but=search.vector), shown.variables
        else:
            params[f"{search.name}_i"] = list(search.terms.ids)
            params[f"{search.name}_w"] = list(search.terms.weights)
            further = shown.text(but=search.terms), shown.variables
        for name, limit in steps(search).items():
            step = replace(search, limit=limit)
            if isinstance(step, VectorSearch):
                queries[name] = _vector_search(searched, step, predicate, further, rids)
            else:
                queries[name] = _term_search(searched, step, further, *_within(rids))
                if rids:
                    narrower[name] = _narrower(name, searched, step, further, rids)
            answer.append(name)
        if first:
            queries[f"first_{search.name}"] = (
                "SELECT @rid AS rid, terms, weights, embedding FROM"
                f" (SELECT expand(rid) FROM (SELECT expand(${search.name})) LIMIT {first:d})"
            )
            answer.append(f"first_{search.name}")
    copies = _copy_searches(chunk_type, searches, predicates, shown, first)
    queries |= copies
    answer += [each for each in copies if each.endswith(COPIES)]
    queries["later"] = "SELECT revision FROM Collection WHERE key = :name"
    return Statement(_text(queries, narrower, [*answer, "later"]), params)


def steps(search: Search) -> dict[str, int]:
    """Return the limits of the queries of a search by their names, in ascending order.

    The first has the name of the search. The indexes begin a long list otherwise than a short one:
    which of equal chunks they find, the last digits of scores, and what a wider beam meets depend
    on the limit. So each head of a list is what a query of its own finds.
    """
    exact = isinstance(search, VectorSearch) and search.exact
    limits = [search.limit] if exact else [*search.heads, search.limit]
    names = [search.name, *(f"{search.name}_{place}" for place in range(1, len(limits)))]
    return dict(zip(names, limits, strict=True))


def _type_of(search: Search, chunk_type: str) -> str:
    return kind_type(chunk_type) if search.kinds else chunk_type


def _sharing(columns: Columns, searches: Sequence[Search]) -> ColumnSql:
    """Return the columns; vectors and terms that searches bind are not sent twice."""
    shared = {
        column: f"{search.name}_v"
        for column, vector in columns.cosines.items()
        for search in searches
        if isinstance(search, VectorSearch) and search.vector is vector
    } | {
        column: search.name
        for column, terms in columns.products.items()
        for search in searches
        if isinstance(search, TermSearch) and search.terms is terms
    }
    return ColumnSql(columns, shared)


def _predicates(searches: Sequence[Search]) -> dict[Filter, Predicate]:
    """Return the conditions of the filters, each with its own parameters."""
    filters = dict.fromkeys(each.filter for each in searches if each.filter is not None)
    prefixes = chain(_PREFIXES, (f"f{number}_" for number in count()))
    return {
        filter: Predicate(*to_sql(filter, prefix=prefix))
        for prefix, filter in zip(prefixes, filters, strict=False)
    }


def _text(queries: Mapping[str, str], narrower: Mapping[str, str], answer: Sequence[str]) -> str:
    """Return one query, or a script if a list may have to be searched for again."""
    if not narrower:
        return rows_together(queries, answer)
    steps = [f"LET {name} = {query}; {narrower.get(name, '')}" for name, query in queries.items()]
    returned = ", ".join(f"'{name}': ${name}" for name in answer)
    return f"{' '.join(steps)} RETURN {{{returned}}};"


def _allowed(
    searches: Sequence[Search], chunk_type: str, predicates: Mapping[Filter, Predicate]
) -> dict[tuple[str, str], str]:
    """Return a variable for the rows that an index is searched within, by type and condition.

    A condition is evaluated once, for any number of searches.
    """
    indexed = [each for each in searches if isinstance(each, TermSearch) or not each.exact]
    wanted = dict.fromkeys(
        (_type_of(each, chunk_type), predicates[each.filter].text)
        for each in indexed
        if each.filter is not None
    )
    return {each: f"allowed{place}" for place, each in enumerate(wanted)}


_Further = tuple[str, str]
"""Further columns, and the variables that they use."""


def _vector_search(
    chunk_type: str,
    search: VectorSearch,
    predicate: Predicate | None,
    further: _Further,
    allowed: str,
) -> str:
    columns, (computed, variables) = "@rid AS rid, chunkId", further
    if not search.exact:
        options = ", ".join([f"efSearch: {max(search.beam, search.limit):d}", *_within(allowed)])
        return (
            f"SELECT {columns}, 1 - distance AS score{computed} FROM (SELECT"
            f" expand(vectorNeighbors('{chunk_type}[embedding]', :{search.name}_v,"
            f" {search.limit:d}, {{{options}}}))){variables}"
        )
    score = f"vectorCosineSimilarity(embedding, :{search.name}_v)"
    where = _HAS_EMBEDDING + (f" AND ({predicate.text})" if predicate else "")
    scan = _scan(chunk_type, score, where, search.limit)
    if computed:
        # Further columns are computed for the chunks found only, not for all that are scanned.
        found = f"(SELECT expand(rid) FROM ({scan}))"
        scan = f"SELECT {columns}, {score} AS score{computed} FROM {found}{variables}"
    return scan


def _term_search(chunk_type: str, search: TermSearch, further: _Further, *options: str) -> str:
    given = f", {{{', '.join(options)}}}" if options else ""
    computed, variables = further
    return (
        f"SELECT @rid AS rid, chunkId, score{computed} FROM (SELECT expand("
        f"`vector.sparseNeighbors`('{chunk_type}[terms,weights]', :{search.name}_i,"
        f" :{search.name}_w, {search.limit:d}{given}))){variables}"
    )


def _copy_searches(
    chunk_type: str,
    searches: Sequence[Search],
    predicates: Mapping[Filter, Predicate],
    columns: ColumnSql,
    first: int,
) -> dict[str, str]:
    """Return queries for the duplicates that searches find. They are in no index, so they are read.

    The names of those that are answered end with :data:`COPIES`.
    """
    queries: dict[str, str] = {}
    shown = replace(columns, spare=True)
    filters = dict.fromkeys(each.filter for each in searches if each.copies)
    for place, filter in enumerate(each for each in filters if each is not None):
        queries |= _represented(chunk_type, predicates[filter].text, f"{place}")
        for search in (each for each in searches if each.copies and each.filter == filter):
            if isinstance(search, VectorSearch):
                score = f"vectorCosineSimilarity(spareEmbedding, :{search.name}_v)"
                least, further = "", shown.text(but=search.vector)
            else:
                words = f"`vector.sparseCreate`(:{search.name}_i, :{search.name}_w)"
                score = f"vectorSparseDot({_SPARE_TERMS}, {words})"
                least, further = f" AND {score} > 0", shown.text(but=search.terms)
            within = f"$copies{place}.chunkId"
            scan = _scan(chunk_type, score, f"chunkId IN {within}{least}", search.limit)
            queries[f"{search.name}{COPIES}"] = (
                f"SELECT @rid AS rid, chunkId, {score} AS score{further} FROM"
                f" (SELECT expand(rid) FROM ({scan})) LET $terms = {_SPARE_TERMS}"
            )
            if first:
                queries[f"first_{search.name}{COPIES}"] = (
                    "SELECT @rid AS rid, spareTerms AS terms, spareWeights AS weights,"
                    " spareEmbedding AS embedding FROM (SELECT expand(rid) FROM"
                    f" (SELECT expand(${search.name}{COPIES})) LIMIT {first:d})"
                )
    return queries


def _represented(chunk_type: str, condition: str, place: str) -> dict[str, str]:
    """Return queries for the duplicates to search, ``copies`` and ``place``: rows ``chunkId``.

    They match a condition, their stand-ins do not, and of several of one stand-in the first is
    selected.
    """
    groups, standing = f"groups{place}", f"standing{place}"
    return {
        # The comparison, unlike IS NOT NULL, is made in the index.
        groups: f"SELECT duplicateOf, min(chunkId) AS chunkId FROM `{chunk_type}`"
        f" WHERE duplicateOf > '' AND ({condition}) GROUP BY duplicateOf",
        standing: f"SELECT set(chunkId) AS ids FROM `{chunk_type}`"
        f" WHERE chunkId IN ${groups}.duplicateOf AND ({condition})",
        f"copies{place}": f"SELECT chunkId FROM (SELECT expand(${groups}))"
        f" WHERE duplicateOf NOT IN ifnull(${standing}[0].ids, [])",
    }


def _scan(chunk_type: str, score: str, condition: str, limit: int) -> str:
    """Return a query that compares all chunks that match a condition: ``rid, chunkId, score``."""
    return (
        f"SELECT @rid AS rid, chunkId, {score} AS score FROM `{chunk_type}` WHERE {condition}"
        f" ORDER BY score DESC, chunkId LIMIT {limit:d}"
    )


def _narrower(
    name: str, chunk_type: str, search: TermSearch, further: _Further, allowed: str
) -> str:
    # The engine takes some multiple of the limit from the whole index and drops what does not
    # match, which is everything if few chunks match. In groups, here of one chunk each, it
    # searches among the matches; that costs more, and is not needed if the list is full.
    groups = "groupBy: 'chunkId'", "groupSize: 1"
    again = _term_search(chunk_type, search, further, *groups, *_within(allowed))
    return f"IF (${name}.size() < {search.limit:d}) {{ LET {name} = {again}; }}"


def _within(allowed: str) -> list[str]:
    return [f"filter: ${allowed}"] if allowed else []


def nearest(
    chunk_type: str, vectors: Sequence[Sequence[float]], *, limit: int, beam: int, exact: bool
) -> Statement:
    """Select the nearest neighbours of each vector among the chunks in the vector index.

    Args:
        chunk_type: The generation to search.
        vectors: The vectors to compare with.
        limit: Number of neighbours of each.
        beam: Beam width of the graph search.
        exact: Scan the embeddings instead of searching the graph.

    Returns one map: ``n0``, ``n1``, ... for each vector in turn, rows ``chunkId, source,
    createdAt, cosine``, nearest first.
    """
    columns = "chunkId, source, createdAt"
    queries = {}
    for place in range(len(vectors)):
        if exact:
            queries[f"n{place}"] = (
                f"SELECT {columns}, vectorCosineSimilarity(embedding, :v{place}) AS cosine"
                f" FROM `{chunk_type}` WHERE {_HAS_EMBEDDING}"
                f" ORDER BY cosine DESC LIMIT {limit:d}"
            )
        else:
            queries[f"n{place}"] = (
                f"SELECT {columns}, 1 - distance AS cosine FROM (SELECT expand(vectorNeighbors("
                f"'{chunk_type}[embedding]', :v{place}, {limit:d},"
                f" {{efSearch: {max(beam, limit):d}}})))"
            )
    return Statement(
        rows_together(queries, queries),
        {f"v{place}": list(vector) for place, vector in enumerate(vectors)},
    )


def build_graph(chunk_type: str, vector: Sequence[float]) -> Statement:
    """Search for one neighbour, which makes the engine build the vector graph first."""
    return Statement(
        f"SELECT chunkId FROM (SELECT expand(vectorNeighbors('{chunk_type}[embedding]', :vector,"
        " 1)))",
        {"vector": list(vector)},
    )
