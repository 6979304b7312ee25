"""Near-duplicate chunks.

A duplicate is stored, so that its document can be restored, but left out of the indexes: an indexed
chunk, its stand-in, represents it. When the stand-in is deleted, the store indexes one of its
duplicates, which then represents the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ability_search.collection import Collection
from ability_search.documents import Vector
from ability_search.store.port import Store
from ability_search.store.records import ROUNDING, ChunkRecord, Row, Search
from ability_search.store.values import Columns

_PROBES = 32
"""Chunks whose neighbours are requested at once."""
_NEIGHBOURS = 10
"""Neighbours per chunk; enough that chunks to be replaced seldom hide one that is kept."""
_COLUMNS = Columns(("source", "created_at"))


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The duplicates among some chunks.

    Attributes:
        stand_ins: chunkId of the stand-in by the chunkId of the duplicate.
        stored: ``created_at`` of the stand-ins that are already stored, by chunkId.
    """

    stand_ins: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)


async def find_duplicates(
    store: Store,
    collection: Collection,
    chunks: Sequence[ChunkRecord],
    thresholds: Mapping[str, float],
) -> Duplicates:
    """Find the chunks that duplicate a stored chunk of the collection or an earlier one.

    Stored chunks of the chunks' own sources are ignored, since the chunks replace them. A stand-in
    is never a duplicate itself. Of several stored neighbours the nearest is the stand-in, of
    several chunks the first.

    Args:
        store: The store.
        collection: The collection that the chunks belong to.
        chunks: New chunks with embeddings.
        thresholds: Minimum cosine of a duplicate and its stand-in, in (0, 1], by the source of the
            duplicate; chunks of other sources are none.

    Raises:
        DatabaseUnavailable: if the store does not answer.
        GenerationGone: if the generation was dropped.
    """
    if not chunks:
        return Duplicates()
    least = [thresholds.get(chunk.source, 2.0) - ROUNDING for chunk in chunks]
    stored = await _stored_neighbours(store, collection, chunks, least) if collection.chunks else {}
    vectors = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
    candidates = [n for n, chunk in enumerate(chunks) if chunk.chunk_id not in stored]
    repeated = await asyncio.to_thread(_repeated, vectors, candidates, least)
    stand_ins = {chunk_id: found.chunk_id for chunk_id, found in stored.items()} | {
        chunks[place].chunk_id: chunks[first].chunk_id for place, first in repeated.items()
    }
    times = {found.chunk_id: found.columns["created_at"] for found in stored.values()}
    return Duplicates(stand_ins, times)


async def _stored_neighbours(
    store: Store,
    collection: Collection,
    chunks: Sequence[ChunkRecord],
    least: Sequence[float],
) -> dict[str, Row]:
    """Return the stored stand-in of each chunk that has one, by chunkId."""
    replaced = {chunk.source for chunk in chunks}
    probes = [(chunk, floor) for chunk, floor in zip(chunks, least, strict=True) if floor <= 1]
    found: dict[str, Row] = {}
    for start in range(0, len(probes), _PROBES):
        part = probes[start : start + _PROBES]
        searches = [
            Search(f"n{place}", chunk.embedding or (), _NEIGHBOURS)
            for place, (chunk, _) in enumerate(part)
        ]
        rows = (await store.search(collection, searches, _COLUMNS, consistent=False)).rows
        for search, (chunk, floor) in zip(searches, part, strict=True):
            near = [
                row
                for row in rows[search.name]
                if row.score >= floor and row.columns["source"] not in replaced
            ]
            if near:
                found[chunk.chunk_id] = near[0]
    return found


def _repeated(vectors: Vector, candidates: Sequence[int], least: Sequence[float]) -> dict[int, int]:
    """Return the candidates that repeat an earlier one, mapped to the first that they repeat.

    Args:
        vectors: Unit vectors, shape (n, d).
        candidates: Row numbers in ``vectors``, ascending; a repetition is never a stand-in.
        least: Minimum cosine of each row as a repetition.
    """
    standing = np.empty(len(candidates), dtype=np.intp)
    count = 0
    found: dict[int, int] = {}
    kept = np.empty((len(candidates), vectors.shape[1]), dtype=np.float32)
    for place in candidates:
        near = np.flatnonzero(kept[:count] @ vectors[place] >= least[place])
        if len(near):
            found[place] = int(standing[near[0]])
        else:
            standing[count], kept[count] = place, vectors[place]
            count += 1
    return found
