"""Tables of the memory store: chunks and sources of a generation, and exact scoring of chunks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.collection import Collection
from ability_search.documents import SparseVector
from ability_search.errors import GenerationGone
from ability_search.filters.predicate import matches
from ability_search.filters.tree import Filter
from ability_search.store.memory_records import MemoryRecords, clock
from ability_search.store.records import (
    VALUE_LENGTH,
    ChunkRecord,
    Link,
    Row,
    SourceRecord,
    metadata_key,
)
from ability_search.store.stored_collections import COLLECTION, collection_of
from ability_search.store.values import Columns, of_collection

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
class StoredSource:
    """A source record."""

    record: SourceRecord

    def copy(self) -> SourceRecord:
        """Return a copy of the record."""
        return _source_copy(self.record)


@dataclass(slots=True)
class Generation:
    """One build of a collection's index; its rows are in the order of insertion."""

    chunks: dict[str, StoredChunk] = field(default_factory=dict)
    """By chunkId."""
    kinds: dict[str, StoredChunk] = field(default_factory=dict)
    sources: dict[str, StoredSource] = field(default_factory=dict)
    """By name."""
    links: list[Link] = field(default_factory=list)

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

    def add_source(self, record: SourceRecord) -> None:
        """Store a source record."""
        self.sources[record.source] = StoredSource(_source_copy(record))

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


def _source_copy(record: SourceRecord) -> SourceRecord:
    return replace(
        record,
        metadata=deepcopy(dict(record.metadata)),
        links=tuple(dict(link) for link in record.links),
    )


class Tables(MemoryRecords):
    """Tables of the store and what all its parts need.

    Args:
        now: The clock of the store, in epoch milliseconds.
        scan_below: Number of chunks from which a generation counts as having a vector graph.
    """

    def __init__(self, now: Callable[[], int] = clock, *, scan_below: int = 1) -> None:
        super().__init__(now)
        self._scan_below = scan_below
        self._generations: dict[str, Generation] = {}

    def _generation(self, name: str) -> Generation:
        try:
            return self._generations[name]
        except KeyError:
            raise GenerationGone(name) from None

    def _collection(self, name: str) -> Collection | None:
        """Return the record of a collection."""
        record = self._table.get((COLLECTION, of_collection(name), (name,)))
        return None if record is None else collection_of(record)

    def _collections(self) -> list[Collection]:
        return [
            collection_of(record)
            for (kind, _, _), record in self._table.items()
            if kind == COLLECTION
        ]

    def _current(self, collection: Collection) -> Collection | None:
        """Return the record if it is still on this generation."""
        record = self._collection(collection.name)
        return record if record is not None and record.type == collection.type else None


# Selecting and scoring


def selected(chunks: Iterable[StoredChunk], filter: Filter | None) -> list[StoredChunk]:
    """Return the indexed chunks that a filter matches, in their order."""
    found = [chunk for chunk in chunks if chunk.indexed]
    return found if filter is None else [c for c in found if matches(filter, properties(c.record))]


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


def nearest_chunks(
    chunks: Iterable[StoredChunk], vector: Sequence[float]
) -> list[tuple[StoredChunk, float]]:
    """Return the chunks that have an embedding, in order, with their cosines to a vector."""
    embedded = [chunk for chunk in chunks if chunk.vector is not None]
    return list(zip(embedded, cosines(embedded, vector).tolist(), strict=True))


def weighed_chunks(
    chunks: Iterable[StoredChunk], terms: SparseVector
) -> list[tuple[StoredChunk, float]]:
    """Return the chunks that share a term, in order, with their dot products with the terms."""
    scored = [(chunk, product(chunk.record, terms)) for chunk in chunks]
    return [(chunk, score) for chunk, score in scored if score is not None]


def row_of(
    chunk: StoredChunk,
    score: float,
    columns: Columns,
    *,
    by: Sequence[float] | SparseVector,
    whole: bool,
) -> Row:
    """Return a chunk as a search result.

    Args:
        chunk: The chunk.
        score: Its score.
        columns: Columns to fill.
        by: Vector or terms that the score is by.
        whole: Whether to add terms, weights and embedding.
    """
    record = chunk.record
    keys = {name: metadata_key(name) for name in columns.fields}
    values: dict[str, Any] = {
        name: value_of(chunk, name) for name, key in keys.items() if key is None
    }
    if any(keys.values()):
        values["metadata"] = {key: value_of(chunk, name) for name, key in keys.items() if key}
    for name, vector in columns.cosines.items():
        values[name] = score if vector is by else cosine(chunk, vector)
    for name, terms in columns.products.items():
        values[name] = score if terms is by else product(record, terms) or 0.0
    if whole:
        values |= {"terms": record.terms, "weights": record.weights, "embedding": chunk.embedding}
    return Row(chunk.rid, record.chunk_id, score, values)


def value_of(chunk: StoredChunk, column: str) -> Any:
    """Return a copy of the value of a column of :attr:`.Columns.fields`."""
    if column in ("handle", "embedding"):
        return chunk.rid if column == "handle" else chunk.embedding
    if column == "dimensions":
        unit = chunk.vector is not None and abs(np.linalg.norm(chunk.vector) - 1) < _UNIT
        return len(chunk.vector) if chunk.vector is not None and unit else 0
    return field_of(chunk.record, column)


def field_of(record: ChunkRecord | SourceRecord, column: str) -> Any:
    """Return a copy of the value of a column of a record."""
    key = metadata_key(column)
    if key is not None:
        value = record.metadata.get(key)
        return None if len(str(value)) > VALUE_LENGTH else deepcopy(value)
    name, cut, length = column.partition("[:")
    value = getattr(record, name)
    return value[: int(length[:-1])] if cut else deepcopy(value)
