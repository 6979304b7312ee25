"""Tables of the memory store: chunks and sources of a generation, and exact scoring of chunks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.documents import SparseVector
from ability_search.filters.predicate import matches
from ability_search.filters.tree import Filter
from ability_search.store.records import (
    VALUE_LENGTH,
    ChunkRecord,
    Hops,
    Linked,
    Row,
    Search,
    SourceLink,
    SourceRecord,
    metadata_key,
    strongest,
)
from ability_search.store.values import Chunks, Columns, Sources

Vector = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float32]

_serials = count(1)
_UNIT = 0.01
"""Tolerance for the length of a unit vector."""


@dataclass(slots=True)
class StoredChunk:
    """A chunk."""

    rid: str
    record: ChunkRecord
    """Without the embedding."""
    vector: Vector | None

    @property
    def indexed(self) -> bool:
        """Return whether searches find the chunk itself, as it is no duplicate."""
        return self.record.duplicate_of is None

    def whole(self) -> ChunkRecord:
        """Return a copy of the record, with the embedding."""
        return replace(
            self.record, metadata=deepcopy(self.record.metadata), embedding=self.embedding
        )

    @property
    def embedding(self) -> tuple[float, ...] | None:
        """The embedding as numbers."""
        return None if self.vector is None else tuple(self.vector.tolist())


@dataclass(slots=True)
class Generation:
    """One build of a collection's index; its rows are in the order of insertion."""

    chunks: dict[str, StoredChunk] = field(default_factory=dict)
    """By chunkId."""
    kinds: dict[str, StoredChunk] = field(default_factory=dict)
    sources: dict[str, SourceRecord] = field(default_factory=dict)
    """By name."""
    links: list[SourceLink] = field(default_factory=list)

    def table(self, *, kinds: bool) -> dict[str, StoredChunk]:
        """Return the generation's own chunks, or those of kinds."""
        return self.kinds if kinds else self.chunks

    def delete_chunks(self, sources: Container[str], *, kinds: bool) -> list[StoredChunk]:
        """Delete the chunks of these sources; return them."""
        table = self.table(kinds=kinds)
        gone = [chunk for chunk in table.values() if chunk.record.source in sources]
        for chunk in gone:
            del table[chunk.record.chunk_id]
        return gone

    def add_chunk(self, record: ChunkRecord) -> None:
        """Store a chunk; if it is of a kind, among those of kinds."""
        embedding = record.embedding
        vector = None if embedding is None else np.array(embedding, dtype=np.float32)
        held = replace(
            record,
            metadata=deepcopy(dict(record.metadata)),
            facets=tuple(record.facets),
            dates=tuple(record.dates),
            terms=tuple(record.terms),
            weights=tuple(record.weights),
            lengths=tuple(record.lengths),
            embedding=None,
        )
        chunk = StoredChunk(f"chunk {next(_serials)}", held, vector)
        self.table(kinds=record.of is not None)[record.chunk_id] = chunk


Stored = StoredChunk | SourceRecord


def source_copy(record: SourceRecord) -> SourceRecord:
    """Return a copy of a source."""
    return replace(
        record,
        metadata=deepcopy(dict(record.metadata)),
        links=tuple(dict(link) for link in record.links),
    )


def record_in(stored: Stored) -> ChunkRecord | SourceRecord:
    """Return the record of a chunk or a source."""
    return stored.record if isinstance(stored, StoredChunk) else stored


def name_of(stored: Stored) -> str:
    """Return the chunkId of a chunk, or the name of a source."""
    return stored.record.chunk_id if isinstance(stored, StoredChunk) else stored.source


def vector_key(stored: Stored) -> str:
    """Return the vector key of a chunk; empty if it has none."""
    assert isinstance(stored, StoredChunk)
    return stored.record.vector_key or ""


# Selecting and scoring


def selected(chunks: Iterable[StoredChunk], filter: Filter | None) -> list[StoredChunk]:
    """Return the indexed chunks that a filter matches, in their order."""
    found = [chunk for chunk in chunks if chunk.indexed]
    return found if filter is None else [c for c in found if matches(filter, properties(c.record))]


def chosen(generation: Generation, of: object) -> list[Stored]:
    """Return what :class:`Chunks` or :class:`Sources` select, in the order of insertion."""
    found: Sequence[Stored]
    if isinstance(of, Sources):
        sources = generation.sources.values()
        found = [each for each in sources if of.names is None or each.source in of.names]
    else:
        assert isinstance(of, Chunks)
        found = _chosen_chunks(generation.table(kinds=bool(of.layer)).values(), of)
    filter = of.filter
    return [
        each for each in found if filter is None or matches(filter, properties(record_in(each)))
    ]


def _chosen_chunks(chunks: Iterable[StoredChunk], of: Chunks) -> list[StoredChunk]:
    values = of.handles, of.ids, of.sources, of.vector_keys
    fields: Sequence[Callable[[StoredChunk], str]] = (
        lambda chunk: chunk.rid,
        name_of,
        lambda chunk: chunk.record.source,
        vector_key,
    )
    for wanted, field_of in zip(values, fields, strict=True):
        if wanted is not None:
            keys = set(wanted)
            chunks = [chunk for chunk in chunks if field_of(chunk) in keys]
    if of.vector_keys is not None:
        last_first = sorted(chunks, key=name_of, reverse=True)
        chunks = {vector_key(chunk): chunk for chunk in last_first}.values()
    return [
        chunk
        for chunk in chunks
        if of.indexed in (None, chunk.indexed)
        and of.first <= chunk.record.chunk_index
        and (of.end is None or chunk.record.chunk_index < of.end)
    ]


def properties(record: ChunkRecord | SourceRecord) -> dict[str, Any]:
    """Return the properties of a chunk or a source by the names that filters use."""
    row = {each.name: getattr(record, each.name) for each in fields(record)}
    return row | {"createdAt": row.get("created_at")}


def cosines(chunks: Sequence[StoredChunk], vector: Sequence[float]) -> Scores:
    """Return the cosines of chunks, which all have an embedding, to a vector; shape (n,)."""
    if not chunks:
        return np.zeros(0, np.float32)
    matrix = np.array([chunk.vector for chunk in chunks], dtype=np.float64)
    other = np.asarray(vector, dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(other)
    # Single precision: equal vectors have equal scores, wherever they are in the matrix.
    return (matrix @ other / np.where(lengths == 0, 1.0, lengths)).astype(np.float32)


def cosine(chunk: StoredChunk, vector: Sequence[float]) -> float | None:
    """Return the cosine of a chunk to a vector; ``None`` without an embedding."""
    return None if chunk.vector is None else float(cosines([chunk], vector)[0])


def product(record: ChunkRecord, terms: SparseVector) -> float | None:
    """Return the dot product of a chunk's terms with others; ``None`` if they share none."""
    weights = dict(zip(terms.ids, terms.weights, strict=True))
    shared = [
        weights[term] * weight
        for term, weight in zip(record.terms, record.weights, strict=True)
        if term in weights
    ]
    return sum(shared) if shared else None


def row_of(
    chunk: StoredChunk, score: float, columns: Columns, *, by: Sequence[float] | SparseVector
) -> Row:
    """Return a chunk as a search result.

    Args:
        chunk: The chunk.
        score: Its score.
        columns: Columns to fill.
        by: Vector or terms that the score is by.
    """
    values = item(chunk, columns)
    keys = {name: key for name in columns.fields if (key := metadata_key(name)) is not None}
    if keys:
        values["metadata"] = {key: values.pop(name) for name, key in keys.items()}
    compared = {**columns.cosines, **columns.products}
    values |= {name: score for name, other in compared.items() if other is by}
    return Row(chunk.rid, chunk.record.chunk_id, score, values)


def item(stored: Stored, columns: Columns | None) -> Any:
    """Return a copy of the record, or a row of its columns."""
    if columns is None:
        return stored.whole() if isinstance(stored, StoredChunk) else source_copy(stored)
    row = {name: _value(stored, name) for name in columns.fields}
    if isinstance(stored, StoredChunk):
        row |= {name: cosine(stored, vector) for name, vector in columns.cosines.items()}
        row |= {name: product(stored.record, by) or 0.0 for name, by in columns.products.items()}
    return row


def _value(stored: Stored, column: str) -> Any:
    """Return a copy of the value of a column of :attr:`.Columns.fields`."""
    record, key = record_in(stored), metadata_key(column)
    if key is not None:
        value = record.metadata.get(key)
        return None if len(str(value)) > VALUE_LENGTH else deepcopy(value)
    if isinstance(stored, StoredChunk) and column in ("handle", "embedding", "dimensions"):
        vector = stored.vector
        unit = vector is not None and abs(np.linalg.norm(vector) - 1) < _UNIT
        size = len(vector) if vector is not None and unit else 0
        return {"handle": stored.rid, "embedding": stored.embedding, "dimensions": size}[column]
    name, cut, length = column.partition("[:")
    value = getattr(record, name)
    return value[: int(length[:-1])] if cut else deepcopy(value)


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
