"""Searches: all of a query as one statement, its rows as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection
from ability_search.documents import SparseVector
from ability_search.filters.tree import Filter
from ability_search.store.arcadedb.core import (
    NOTES,
    RUN,
    Parameters,
    Statement,
    kind_type,
    link_type,
    rows_together,
)
from ability_search.store.arcadedb.filter_sql import to_sql
from ability_search.store.arcadedb.rows import (
    CHUNK_COLUMNS,
    CHUNK_FIELDS,
    SPARE,
    TEXT_COLUMNS,
    chunk_text,
    collection_in,
    link,
    shorter,
)
from ability_search.store.records import (
    LINKS_PER_HOP,
    VALUE_LENGTH,
    Ahead,
    By,
    ChunkText,
    Hops,
    Linked,
    Row,
    Search,
    Searched,
    metadata_key,
)
from ability_search.store.values import Chunks, Columns

_COLLECTION = "SELECT FROM Collection WHERE key = :name"
# The comparison refuses to be without one, and asking for the embedding itself reads it twice.
_HAS_EMBEDDING = "duplicateOf IS NULL"
_TERMS = "`vector.sparseCreate`(terms, weights)"
_SPARE_TERMS = "`vector.sparseCreate`(spareTerms, spareWeights)"
_COPIES = "Copies"
"""Suffix of the name of a search, for the duplicates that it finds."""
_LINKS_READ = 1000
"""Links to read for those that are followed."""
_CHUNKS_OF_HOP = 2000
"""Chunks to compare in each hop."""
_CHUNKS_OF_SOURCES = 10_000
"""Chunks to compare for the best chunks of sources."""
_OWN = ("rid", "chunkId", "score")
"""Columns of every row, in addition to the requested ones."""


class SearchStatement:
    """The queries of all searches in one statement, and the values of its answer.

    The statement returns one map: ``collection`` (its record as it was before), ``unindexed`` (a
    row if a commit was being indexed then), ``later`` (its revision after the searches) and, by the
    names of the :func:`_steps` of each search, rows ``rid, chunkId, score`` and the columns. The
    duplicates that it finds are apart, by its name and :data:`_COPIES`; the links of each hop by
    its name, ``_out`` or ``_in`` and the number of the hop.

    Args:
        collection: The collection; its generation is searched.
        searches: As for :meth:`.Store.search`, as all others.
        columns: Columns of every row.
        ahead: The chunks whose texts are wanted.
        beam: Minimum beam width of searches of a graph.
        scan_below: Number of chunks below which all are compared.
    """

    def __init__(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        ahead: Ahead | None = None,
        *,
        beam: int,
        scan_below: int,
    ) -> None:
        self._collection = collection
        self._columns = columns
        self._beam = beam
        self._scans = {each.name for each in searches if is_scan(each, collection, scan_below)}
        self._all = searches
        self._searches = [each for each in searches if collection.kind_chunks or not each.kinds]
        self._queries = {"collection": _COLLECTION, "unindexed": NOTES}
        self._answer = ["collection", "unindexed"]
        self._again: dict[str, str] = {}
        self._params: dict[str, Any] = {"name": collection.name, "type": collection.type}
        self._metadata = {
            f"metadata{place}": key
            for place, key in enumerate(filter(None, map(metadata_key, columns.fields)))
        }
        self._params |= {f"{name}_k": key for name, key in self._metadata.items()}
        self._bound: dict[int, str] = {}
        for search in self._searches:
            self._bind(search.name, search.by)
        for column, by in self._by_column.items():
            if id(by) not in self._bound:
                self._bind(f"{column}_c", by)
        self._conditions = self._bind_filters()
        self._allowed = self._select_allowed()
        for search in self._searches:
            self._add(search)
        if ahead is not None:
            self._add_ahead(ahead)
        self._add_copies()
        self._queries["later"] = "SELECT revision FROM Collection WHERE key = :name"
        self._answer.append("later")

    @property
    def statement(self) -> Statement:
        """One query, or a script if a list may have to be searched for again, or follows links."""
        if not self._again and all(search.within is None for search in self._searches):
            return Statement(rows_together(self._queries, self._answer), self._params)
        lets = [
            f"LET {name} = {query}; {self._again.get(name, '')}"
            for name, query in self._queries.items()
        ]
        shown = [f"'{name}': ${name}" for name in self._answer]
        returned = ", ".join([*shown, f"'run': ${RUN}"])
        return Statement(f"{' '.join(lets)} RETURN {{{returned}}};", self._params)

    # Columns

    def _bind(self, name: str, by: By) -> None:
        """Bind a vector (``_v``), or the ids (``_i``) and weights (``_w``) of terms."""
        self._bound.setdefault(id(by), name)
        if isinstance(by, SparseVector):
            self._params |= {f"{name}_i": list(by.ids), f"{name}_w": list(by.weights)}
        else:
            self._params[f"{name}_v"] = list(by)

    def _score(self, by: By, *, spare: bool = False, terms: str = "") -> str:
        """Return the SQL of the score of a chunk by a vector or terms.

        ``terms`` is the sparse vector of the chunk, if it is known; ``spare`` is for duplicates.
        """
        name = self._bound[id(by)]
        if isinstance(by, SparseVector):
            own = terms or (_SPARE_TERMS if spare else _TERMS)
            return f"vectorSparseDot({own}, `vector.sparseCreate`(:{name}_i, :{name}_w))"
        return f"vectorCosineSimilarity({SPARE['embedding'] if spare else 'embedding'}, :{name}_v)"

    @property
    def _by_column(self) -> Mapping[str, By]:
        return {**self._columns.products, **self._columns.cosines}

    def _further(self, search: Search, *, spare: bool = False) -> str:
        """Return the columns as they follow others, without those that are the score.

        ``spare`` are those of duplicates. The query needs :meth:`_variables`, too.
        """
        names = [name for name in self._columns.fields if metadata_key(name) is None]
        fields = [CHUNK_COLUMNS.get(name, name) for name in names]
        if spare:
            fields = [f"{SPARE[name]} AS {name}" if name in SPARE else name for name in fields]
        values = [
            f"{shorter(f'metadata[:{name}_k]', VALUE_LENGTH)} AS {name}" for name in self._metadata
        ]
        computed = [
            f"{self._score(by, spare=spare, terms='$terms')} AS {name}"
            for name, by in self._by_column.items()
            if by is not search.by
        ]
        return "".join(f", {each}" for each in (*fields, *values, *computed))

    def _variables(self, *, spare: bool = False) -> str:
        """Return what is computed once for each row, as it follows the target of the query."""
        return (
            f" LET $terms = {_SPARE_TERMS if spare else _TERMS}" if self._columns.products else ""
        )

    # Filters

    def _bind_filters(self) -> Mapping[Filter, str]:
        """Return the conditions of the filters."""
        filters = dict.fromkeys(each.filter for each in self._searches if each.filter is not None)
        params = Parameters("f")
        conditions = {filter: to_sql(filter, params) for filter in filters}
        self._params |= params
        return conditions

    def _condition(self, search: Search) -> str:
        """Return the condition of a search on the chunks that it compares."""
        if search.filter is None:
            return _HAS_EMBEDDING
        return f"{_HAS_EMBEDDING} AND ({self._conditions[search.filter]})"

    def _select_allowed(self) -> dict[tuple[str, Filter], str]:
        """Add the queries for the rows that indexes are searched within; return their names.

        They are by type and filter: a condition is evaluated once, for any number of searches.
        """
        indexed = [
            each for each in self._searches if each.within is None and each.name not in self._scans
        ]
        wanted = dict.fromkeys(
            (self._type(each), each.filter) for each in indexed if each.filter is not None
        )
        names = {each: f"allowed{place}" for place, each in enumerate(wanted)}
        for (searched, filter), name in names.items():
            self._queries[name] = f"SELECT @rid FROM `{searched}` WHERE {self._conditions[filter]}"
        return names

    # Searches

    def _type(self, search: Search) -> str:
        return kind_type(self._collection.type) if search.kinds else self._collection.type

    def _add(self, search: Search) -> None:
        """Add the queries of a search."""
        if isinstance(search.within, Linked) and not self._collection.links:
            return
        if search.within is not None:
            self._compare_within(search, search.within)
        elif search.name in self._scans:
            found = self._best(search, self._condition(search))
            self._queries[search.name] = self._shown(search, found)
        else:
            for name, limit in self._steps(search).items():
                self._search_index(name, replace(search, limit=limit))
        self._answer += self._steps(search)

    def _add_ahead(self, ahead: Ahead) -> None:
        """Add the query for the texts of the first rows of all searches, by each order."""
        by = {each.name: each.by for each in self._searches}
        params, orders = Parameters("ahead_"), []
        for place, order in enumerate(ahead.orders):
            shares = [
                (by[name], params.bind(weight), params.bind(half) if half else None)
                for name, (weight, half) in order.items()
                if name in by
            ]
            for name, own in by.items():
                known = filter(None, (self._share(own, *share) for share in shares))
                self._queries[f"order{place}_{name}"] = (
                    f"SELECT rid, chunkId, {' + '.join(known) or 0} AS sum"
                    f" FROM (SELECT expand(${name}))"
                )
            every = _together([f"order{place}_{name}" for name in by])
            orders.append(f"order{place}")
            self._queries[orders[-1]] = (
                f"SELECT DISTINCT rid, chunkId, sum FROM (SELECT expand({every}))"
                f" ORDER BY sum DESC, chunkId LIMIT {ahead.first:d}"
            )
        self._params |= params
        self._queries["ahead"] = (
            f"SELECT @rid AS rid, {', '.join(TEXT_COLUMNS)} FROM (SELECT expand(rid) FROM"
            f" (SELECT DISTINCT rid FROM (SELECT expand({_together(orders)}))))"
        )
        self._answer.append("ahead")

    def _share(self, found_by: By, by: By, weight: str, half: str | None) -> str | None:
        """Return the SQL of the share of a score in a sum; ``None`` if the row does not have it."""
        columns = {id(other): column for column, other in self._by_column.items()}
        column = "score" if by is found_by else columns.get(id(by))
        if column is None:
            return None
        score = f"ifnull({column}, 0)"
        return f"{score} * {weight}" + (f" / ({score} + {half})" if half else "")

    def _steps(self, search: Search) -> dict[str, int]:
        """Return the limits of the queries of a search by their names, in ascending order.

        The first has the name of the search. The indexes begin a long list otherwise than a short
        one: which of equal chunks they find, the last digits of scores, and what a wider beam meets
        depend on the limit. So each head of a list is what a query of its own finds.
        """
        indexed = search.within is None and search.name not in self._scans
        limits = [*search.heads, search.limit] if indexed else [search.limit]
        names = [search.name, *(f"{search.name}_{place}" for place in range(1, len(limits)))]
        return dict(zip(names, limits, strict=True))

    def _best(self, search: Search, condition: str, *, spare: bool = False) -> str:
        """Return the query that compares all chunks that match a condition."""
        return (
            f"SELECT @rid AS rid, chunkId, {self._score(search.by, spare=spare)} AS score"
            f" FROM `{self._type(search)}` WHERE {condition}"
            f" ORDER BY score DESC, chunkId LIMIT {search.limit:d}"
        )

    def _shown(self, search: Search, found: str, *, spare: bool = False) -> str:
        """Return the query for the rows of chunks that another one found.

        Columns are computed for these only, not for all that are compared.
        """
        score = self._score(search.by, spare=spare)
        return (
            f"SELECT @rid AS rid, chunkId, {score} AS score{self._further(search, spare=spare)}"
            f" FROM (SELECT expand(rid) FROM ({found})){self._variables(spare=spare)}"
        )

    def _search_index(self, name: str, search: Search) -> None:
        """Add the query of an index, and if need be a second one."""
        chunk_type, limit, bound = self._type(search), search.limit, self._bound[id(search.by)]
        allowed = self._allowed[chunk_type, search.filter] if search.filter is not None else ""
        within = [f"filter: ${allowed}"] if allowed else []
        further = f"{self._further(search)} FROM (SELECT expand("
        if not isinstance(search.by, SparseVector):
            options = ", ".join([f"efSearch: {max(self._beam, limit):d}", *within])
            self._queries[name] = (
                f"SELECT @rid AS rid, chunkId, 1 - distance AS score{further}"
                f"vectorNeighbors('{chunk_type}[embedding]', :{bound}_v, {limit:d},"
                f" {{{options}}}))){self._variables()}"
            )
            return

        def by_terms(*options: str) -> str:
            given = f", {{{', '.join(options)}}}" if options else ""
            return (
                f"SELECT @rid AS rid, chunkId, score{further}`vector.sparseNeighbors`("
                f"'{chunk_type}[terms,weights]', :{bound}_i, :{bound}_w, {limit:d}"
                f"{given}))){self._variables()}"
            )

        self._queries[name] = by_terms(*within)
        if allowed:
            # The engine takes some multiple of the limit from the whole index and drops what does
            # not match, which is everything if few chunks match. In groups, here of one chunk each,
            # it searches among the matches; that costs more, and is not needed if the list is full.
            grouped = by_terms("groupBy: 'chunkId'", "groupSize: 1", *within)
            self._again[name] = f"IF (${name}.size() < {limit:d}) {{ LET {name} = {grouped}; }}"

    # Searches within some chunks

    def _compare_within(self, search: Search, within: Chunks | Linked) -> None:
        """Add the queries that compare all chunks of a selection, or follow links."""
        name = search.name
        if isinstance(within, Linked):
            near = self._walk(search, within)
        else:
            near = [f"{name}_near"]
            self._queries[near[0]] = self._among(search, within)
        least = ""
        if search.least is not None:
            self._params[f"{name}_least"] = search.least
            least = f" WHERE score >= :{name}_least"
        self._queries[f"{name}_kept"] = (
            f"SELECT rid, score FROM (SELECT expand({_together(near)})){least}"
            f" ORDER BY score DESC, rid LIMIT {search.limit:d}"
        )
        self._queries[name] = self._shown(search, f"SELECT expand(${name}_kept)")

    def _among(self, search: Search, within: Chunks) -> str:
        """Return the query that compares the chunks with some ids, or of some sources."""
        name = f"{search.name}_in"
        if within.ids is None:
            self._params[name] = list(within.sources or ())
            return self._best_of_sources(search, f"source IN :{name}", _CHUNKS_OF_SOURCES)
        self._params[name] = list(within.ids)
        return (
            f"SELECT @rid AS rid, {self._score(search.by)} AS score FROM"
            f" `{self._type(search)}` WHERE chunkId IN :{name} AND {self._condition(search)}"
        )

    def _best_of_sources(self, search: Search, sources: str, most: int) -> str:
        """Return the query for the best chunk of each source, of equal ones the first."""
        # The engine treats first() as an aggregate only together with max().
        return (
            "SELECT source, first(rid) AS rid, max(score) AS score FROM"
            f" (SELECT source, @rid AS rid, chunkIndex, {self._score(search.by)} AS score"
            f" FROM (SELECT FROM `{self._type(search)}` WHERE {sources}"
            f" AND {self._condition(search)} LIMIT {most:d})"
            " ORDER BY score DESC, chunkIndex) GROUP BY source"
        )

    def _walk(self, search: Search, within: Linked) -> list[str]:
        """Add the queries that follow links; return the names of those with the best chunks."""
        name = search.name
        self._params |= {f"{name}_in": list(within.sources), f"{name}_by": list(within.kinds or ())}
        of_kind = "" if within.kinds is None else f" AND kind IN :{name}_by"
        here, near = f":{name}_in", []
        unseen = f"source NOT IN {here}"
        for hop in range(1, within.hops + 1):
            out, into = f"{name}_out{hop}", f"{name}_in{hop}"
            for links, end in ((out, "source"), (into, "target")):
                self._queries[links] = (
                    "SELECT source, target, kind, weight FROM (SELECT FROM"
                    f" `{link_type(self._collection.type)}` WHERE {end} IN {here}{of_kind}"
                    f" LIMIT {_LINKS_READ}) ORDER BY weight DESC, source, target, kind"
                    f" LIMIT {LINKS_PER_HOP}"
                )
                self._answer.append(links)
            self._queries[f"{name}_to{hop}"] = (
                f"SELECT set(unionAll(${out}.target, ${into}.source)) AS sources"
            )
            reached = f"source IN ${name}_to{hop}[0].sources AND {unseen}"
            self._queries[f"{name}_near{hop}"] = self._best_of_sources(
                search, reached, _CHUNKS_OF_HOP
            )
            near.append(f"{name}_near{hop}")
            here = f"${name}_near{hop}.source"
            unseen += f" AND source NOT IN {here}"
        return near

    # Duplicates

    def _add_copies(self) -> None:
        """Add the queries for the duplicates that searches find: they are in no index.

        They match a filter, their stand-ins do not, and of several of one stand-in the first is
        found.
        """
        if not self._collection.duplicates:
            return
        copied = [each for each in self._searches if not each.kinds and each.within is None]
        for place, (filter, condition) in enumerate(self._conditions.items()):
            searches = [each for each in copied if each.filter == filter]
            if searches:
                self._select_copies(condition, f"{place}")
            for search in searches:
                matching = f"chunkId IN $copies{place}.chunkId"
                if isinstance(search.by, SparseVector):
                    matching += f" AND {self._score(search.by, spare=True)} > 0"
                name = f"{search.name}{_COPIES}"
                found = self._best(search, matching, spare=True)
                self._queries[name] = self._shown(search, found, spare=True)
                self._answer.append(name)

    def _select_copies(self, condition: str, place: str) -> None:
        """Add the queries for the duplicates to search, ``copies`` and ``place``."""
        groups, standing = f"groups{place}", f"standing{place}"
        chunk_type = self._collection.type
        # The comparison, unlike IS NOT NULL, is made in the index.
        self._queries[groups] = (
            f"SELECT duplicateOf, min(chunkId) AS chunkId FROM `{chunk_type}`"
            f" WHERE duplicateOf > '' AND ({condition}) GROUP BY duplicateOf"
        )
        self._queries[standing] = (
            f"SELECT set(chunkId) AS ids FROM `{chunk_type}`"
            f" WHERE chunkId IN ${groups}.duplicateOf AND ({condition})"
        )
        self._queries[f"copies{place}"] = (
            f"SELECT chunkId FROM (SELECT expand(${groups}))"
            f" WHERE duplicateOf NOT IN ifnull(${standing}[0].ids, [])"
        )

    # The answer

    def searched(self, answer: Mapping[str, Any]) -> Searched:
        """Return the values of the answer to the statement."""
        texts = {
            row["rid"]: chunk_text(row["rid"], map(row.get, TEXT_COLUMNS))
            for row in answer.get("ahead") or ()
        }
        return Searched(
            collection_in(answer["collection"]),
            {each.name: self._rows(self._ranked(answer, each), each, texts) for each in self._all},
            {
                each.name: self._hops(answer, each.name, each.within.hops)
                for each in self._all
                if isinstance(each.within, Linked)
            },
        )

    def _ranked(self, answer: Mapping[str, Any], search: Search) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a search, best first in each of its steps, each chunk once.

        Duplicates that it finds rank among those of each step.
        """
        copies = answer.get(search.name + _COPIES) or []
        ranked: dict[str, Mapping[str, Any]] = {}
        for name, limit in self._steps(search).items():
            rows = [*(answer.get(name) or ()), *copies]
            rows.sort(key=lambda row: (-(row["score"] or 0.0), row["chunkId"]))
            for row in rows[:limit]:
                ranked.setdefault(row["chunkId"], row)
        return ranked.values()

    def _rows(
        self, found: Iterable[Mapping[str, Any]], search: Search, texts: Mapping[str, ChunkText]
    ) -> list[Row]:
        """Return the rows of a search with all columns."""
        scored = [name for name, by in self._by_column.items() if by is search.by]
        rows = []
        for row in found:
            score = row["score"] or 0.0
            columns = {
                CHUNK_FIELDS.get(name, name): value
                for name, value in row.items()
                if name not in _OWN
            }
            if self._metadata:
                columns["metadata"] = {
                    key: columns.pop(name, None) for name, key in self._metadata.items()
                }
            columns |= dict.fromkeys(scored, score)
            rows.append(Row(row["rid"], row["chunkId"], score, columns, texts.get(row["rid"])))
        return rows

    def _hops(self, answer: Mapping[str, Any], name: str, hops: int) -> Hops:
        """Return the links from and to the starts of each hop."""
        if not self._collection.links:
            return ()
        return [
            (
                [link(row) for row in answer[f"{name}_out{hop}"]],
                [link(row) for row in answer[f"{name}_in{hop}"]],
            )
            for hop in range(1, hops + 1)
        ]


def is_scan(search: Search, collection: Collection, below: int) -> bool:
    """Return whether all embeddings are compared instead of searched through the graph."""
    if isinstance(search.by, SparseVector):
        return False
    return (collection.kinds_scanned if search.kinds else collection.scanned)(below=below)


def _together(names: Sequence[str]) -> str:
    """Return the SQL of the rows of all of some queries."""
    every = ", ".join(f"${name}" for name in names)
    return f"unionAll({every})" if len(names) > 1 else every


def complete(answer: Mapping[str, Any]) -> bool:
    """Return whether no commit was in progress, of which the searches may have seen only half."""
    before, after = ({row["revision"] for row in answer[name]} for name in ("collection", "later"))
    return not answer["unindexed"] and before <= after
