"""Retrieval from the memory store: exact searches, also over links."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ability_search.documents import SparseVector
from ability_search.filters.predicate import matches
from ability_search.filters.tree import Filter
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    cosines,
    product,
    properties,
    selected,
)
from ability_search.store.records import Hops, Linked, Search, SourceLink, strongest
from ability_search.store.values import Chunks

Scored = list[tuple[StoredChunk, float]]
"""Chunks with their scores."""


def find(generation: Generation, search: Search) -> tuple[Scored, Hops | None]:
    """Return the chunks that a search finds, best first, and the links if it follows some."""
    hops: Hops | None = None
    if isinstance(search.within, Linked):
        found, hops = _walk(generation, search, search.within)
    elif search.within is not None:
        found = _within(generation, search, search.within)
    else:
        found = _found(generation, search)
    if search.least is not None:
        found = [each for each in found if each[1] >= search.least]
    ranked = sorted(found, key=lambda each: (-each[1], each[0].record.chunk_id))
    return ranked[: search.limit], hops


def _scored(chunks: Sequence[StoredChunk], search: Search, *, every: bool = False) -> Scored:
    """Return chunks with their scores; without a term only if ``every`` one is to be returned."""
    if not isinstance(search.by, SparseVector):
        embedded = [chunk for chunk in chunks if chunk.vector is not None]
        return list(zip(embedded, cosines(embedded, search.by).tolist(), strict=True))
    scored = [(chunk, product(chunk.record, search.by)) for chunk in chunks]
    return [(chunk, score or 0.0) for chunk, score in scored if every or score is not None]


def _found(generation: Generation, search: Search) -> Scored:
    """Return the chunks that a search finds."""
    table = generation.table(kinds=search.kinds)
    chunks = selected(table.values(), search.filter)
    if search.filter is not None:
        chunks += _copies(table.values(), search.filter, {c.record.chunk_id for c in chunks})
    return _scored(chunks, search)


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


def _within(generation: Generation, search: Search, within: Chunks) -> Scored:
    """Return the chunks with some ids, or the best one of each of some sources."""
    chunks = selected(generation.chunks.values(), search.filter)
    if within.ids is not None:
        ids = set(within.ids)
        return _scored([c for c in chunks if c.record.chunk_id in ids], search, every=True)
    return _best_of_sources(chunks, search, set(within.sources or ()))


def _best_of_sources(
    chunks: Iterable[StoredChunk], search: Search, sources: Container[str]
) -> Scored:
    """Return the best chunk of each source, of equal ones the first."""
    own = [chunk for chunk in chunks if chunk.record.source in sources]
    ranked = sorted(
        _scored(own, search, every=True), key=lambda each: (-each[1], each[0].record.chunk_index)
    )
    best: dict[str, tuple[StoredChunk, float]] = {}
    for chunk, score in ranked:
        best.setdefault(chunk.record.source, (chunk, score))
    return list(best.values())


def _walk(generation: Generation, search: Search, within: Linked) -> tuple[Scored, Hops]:
    """Return the best chunks of linked sources, and the links of each hop."""
    if not generation.links:
        return [], ()
    allowed = selected(generation.chunks.values(), search.filter)
    followed = [
        link for link in generation.links if within.kinds is None or link.kind in within.kinds
    ]
    near: Scored = []
    hops: list[tuple[Sequence[SourceLink], Sequence[SourceLink]]] = []
    here, seen = set(within.sources), set(within.sources)
    for _ in range(within.hops):
        out = strongest(link for link in followed if link.source in here)
        into = strongest(link for link in followed if link.target in here)
        hops.append((out, into))
        ends = {link.target for link in out} | {link.source for link in into}
        best = _best_of_sources(allowed, search, ends - seen)
        near += best
        here = {chunk.record.source for chunk, _ in best}
        seen |= here
    return near, hops
