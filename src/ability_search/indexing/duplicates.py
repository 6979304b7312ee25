"""Detection of near-duplicate chunks.

A duplicate is stored, so that its document can be restored, but not indexed: its embedding, terms
and weights are kept in fields that are not indexed, and it names its stand-in, the indexed chunk
that represents it. When the stand-in is deleted, the duplicate is indexed in its place, see
:func:`statements.replace_sources`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ability_search.collection import Collection
from ability_search.documents import Vector
from ability_search.ports import Store
from ability_search.store import arcadedb

Row = dict[str, Any]

_PROBES = 32
"""Rows whose neighbours are requested in one statement."""
_NEIGHBOURS = 10
"""Neighbours per row; enough that chunks to be replaced seldom hide one that is kept."""
_ROUNDING = 1e-6
"""Tolerance for the cosine of equal vectors that are rounded to seven decimals."""


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Parameters of duplicate detection.

    Attributes:
        threshold: Minimum cosine of a duplicate and its stand-in, in (0, 1].
        beam: Beam width of the graph search.
        scan_below: Number of chunks below which embeddings are scanned, even if there is a graph.
    """

    threshold: float
    beam: int
    scan_below: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The duplicates among some rows.

    Attributes:
        stand_ins: chunkId of the stand-in by the chunkId of the duplicate.
        stored: ``createdAt`` of the stand-ins that are already in the database, by chunkId.
    """

    stand_ins: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)

    def set_aside(self, row: Row) -> Row:
        """Return the row to store; a duplicate has its indexed fields moved to spare fields."""
        stand_in = self.stand_ins.get(row["chunkId"])
        if stand_in is None:
            return row
        return row | {
            "duplicateOf": stand_in,
            "embedding": None,
            "terms": None,
            "weights": None,
            "spareEmbedding": row["embedding"],
            "spareTerms": row["terms"],
            "spareWeights": row["weights"],
        }


async def find_duplicates(
    store: Store, collection: Collection, rows: Sequence[Row], rule: Deduplication
) -> Duplicates:
    """Find the rows that duplicate a stored chunk of the collection or an earlier row.

    Stored chunks of the rows' own sources are ignored, since the rows replace them. A stand-in is
    never a duplicate itself. Of several stored neighbours the nearest is the stand-in, of several
    rows the first.

    Args:
        store: The database.
        collection: The collection that the rows belong to.
        rows: Complete rows of chunks, including embeddings.
        rule: The parameters.

    Raises:
        DatabaseUnavailable: if the database does not answer.
        StatementRefused: if the generation is gone.
    """
    if not rows:
        return Duplicates()
    stored = await _stored_neighbours(store, collection, rows, rule) if collection.chunks else {}
    vectors = _unit(np.array([row["embedding"] for row in rows], dtype=np.float32))
    candidates = [place for place, row in enumerate(rows) if row["chunkId"] not in stored]
    repeated = await asyncio.to_thread(_repeated, vectors, candidates, rule.threshold - _ROUNDING)
    stand_ins = {chunk_id: found["chunkId"] for chunk_id, found in stored.items()} | {
        rows[place]["chunkId"]: rows[first]["chunkId"] for place, first in repeated.items()
    }
    return Duplicates(
        stand_ins, {found["chunkId"]: found["createdAt"] for found in stored.values()}
    )


async def _stored_neighbours(
    store: Store, collection: Collection, rows: Sequence[Row], rule: Deduplication
) -> dict[str, Mapping[str, Any]]:
    """Return the stored stand-in (``chunkId, source, createdAt, cosine``) by chunkId of a row."""
    replaced = {row["source"] for row in rows}
    least = rule.threshold - _ROUNDING
    found: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(rows), _PROBES):
        part = rows[start : start + _PROBES]
        answer = await store.read(
            *arcadedb.nearest(
                collection.type,
                [row["embedding"] for row in part],
                limit=_NEIGHBOURS,
                beam=rule.beam,
                exact=collection.scanned(below=rule.scan_below),
            )
        )
        for place, row in enumerate(part):
            near = [
                each
                for each in answer[f"n{place}"]
                if each["cosine"] >= least and each["source"] not in replaced
            ]
            if near:
                found[row["chunkId"]] = min(
                    near, key=lambda each: (-each["cosine"], each["chunkId"])
                )
    return found


def _repeated(vectors: Vector, candidates: Sequence[int], least: float) -> dict[int, int]:
    """Return the candidates that repeat an earlier one, mapped to the first that they repeat.

    Args:
        vectors: Unit vectors, shape (n, d).
        candidates: Row numbers in ``vectors``, ascending; a repetition is never a stand-in.
        least: Minimum cosine of a repetition.
    """
    standing = np.empty(len(candidates), dtype=np.intp)
    count = 0
    found: dict[int, int] = {}
    kept = np.empty((len(candidates), vectors.shape[1]), dtype=np.float32)
    for place in candidates:
        near = np.flatnonzero(kept[:count] @ vectors[place] >= least)
        if len(near):
            found[place] = int(standing[near[0]])
        else:
            standing[count], kept[count] = place, vectors[place]
            count += 1
    return found


def _unit(vectors: Vector) -> Vector:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)
