"""Retrieval from the memory store: exact searches and graph expansion."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from ability_search.collection import Collection
from ability_search.filters.predicate import matches
from ability_search.filters.tree import Filter
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    Tables,
    nearest_chunks,
    properties,
    row_of,
    selected,
    weighed_chunks,
)
from ability_search.store.records import (
    GraphAnswer,
    GraphRequest,
    Link,
    Row,
    Search,
    Searched,
    TermSearch,
    VectorSearch,
    strongest,
)
from ability_search.store.values import Columns


class MemorySearch(Tables):
    """See :class:`ability_search.store.port.SearchStore`."""

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        first: int = 0,
    ) -> Searched[Mapping[str, Sequence[Row]]]:
        generation = self._generation(collection.type)
        return Searched(
            self._collection(collection.name),
            _search(generation, searches, columns, first),
        )

    async def best_chunks(
        self,
        generation: str,
        sources: Sequence[str],
        columns: Columns,
        filter: Filter | None,
        *,
        by: str,
        chunk_ids: Sequence[str] = (),
    ) -> tuple[dict[str, Row], dict[str, Row]]:
        wanted = set(sources)
        stored = self._generation(generation).chunks
        chunks = [c for c in stored.values() if c.record.source in wanted]
        given = selected((stored[each] for each in chunk_ids if each in stored), filter)
        rows: dict[str, tuple[Row, int]] = {}
        for chunk in selected(chunks, filter):
            row = row_of(chunk, 0.0, columns)
            if row.columns[by] is None:
                continue
            row = replace(row, score=row.columns[by])
            source, index = chunk.record.source, chunk.record.chunk_index
            known = rows.get(source)
            if known is None or (-row.score, index) < (-known[0].score, known[1]):
                rows[source] = row, index
        return {source: row for source, (row, _) in rows.items()}, {
            chunk.record.chunk_id: row_of(chunk, 0.0, columns) for chunk in given
        }

    async def graph(self, generation: str, request: GraphRequest) -> GraphAnswer:
        stored = self._generation(generation)
        vector = request.columns.cosines[request.by]
        allowed = selected(stored.chunks.values(), request.filter)
        near = [c for c in allowed if c.record.chunk_id in set(request.neighbours)]
        hops: list[tuple[Sequence[Link], Sequence[Link]]] = []
        here, seen = set(request.sources), set(request.sources)
        for _ in range(request.hops if request.links else 0):
            followed = [
                link for link in stored.links if request.kinds is None or link.kind in request.kinds
            ]
            out = strongest(link for link in followed if link.source in here)
            into = strongest(link for link in followed if link.target in here)
            hops.append((out, into))
            ends = {link.target for link in out} | {link.source for link in into}
            reached = [c for c in allowed if c.record.source in ends - seen]
            best: dict[str, StoredChunk] = {}
            for chunk, _score in nearest_chunks(reached, vector, limit=len(reached)):
                best.setdefault(chunk.record.source, chunk)
            near += best.values()
            here = set(best)
            seen |= here
        distinct = {chunk.rid: chunk for chunk in near}
        ranked = nearest_chunks(distinct.values(), vector, limit=request.limit)
        return GraphAnswer(
            [row_of(c, score, request.columns) for c, score in ranked if score >= request.least],
            hops,
        )


def _search(
    generation: Generation, searches: Sequence[Search], columns: Columns, first: int
) -> dict[str, list[Row]]:
    found = {each.name: _found(generation, each) for each in searches}
    whole = {chunk.rid for ranking in found.values() for chunk, _ in ranking[:first]}
    return {
        each.name: [
            row_of(
                chunk,
                score,
                columns,
                scored_by=each.vector if isinstance(each, VectorSearch) else each.terms,
                whole=chunk.rid in whole,
            )
            for chunk, score in found[each.name]
        ]
        for each in searches
    }


def _found(generation: Generation, search: Search) -> list[tuple[StoredChunk, float]]:
    """Return the chunks that a search finds with their scores, best first."""
    table = generation.table(kinds=search.kinds)
    chunks = selected(table.values(), search.filter)
    if search.copies and search.filter is not None:
        chunks += _copies(table.values(), search.filter, {c.record.chunk_id for c in chunks})
    match search:
        case VectorSearch():
            every = nearest_chunks(chunks, search.vector, limit=len(chunks))
        case TermSearch():
            every = weighed_chunks(chunks, search.terms)
    return sorted(every, key=lambda found: (-found[1], found[0].record.chunk_id))[: search.limit]


def _copies(
    chunks: Iterable[StoredChunk], filter: Filter, found: Container[str]
) -> Iterable[StoredChunk]:
    """Return the first duplicate that a filter matches of each stand-in that is not found."""
    first: dict[str, StoredChunk] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.record.chunk_id):
        other = chunk.record.duplicate_of
        if other and other not in found and matches(filter, properties(chunk.record)):
            first.setdefault(other, chunk)
    return first.values()
