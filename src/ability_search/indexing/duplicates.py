"""Chunks that say what another chunk of the collection says already.

A duplicate is stored, so that its document can be restored, but kept out of the indexes: what they
would hold of it is spared beside them, and it names the chunk that stands for it. When that one
goes, the duplicate takes its place in the indexes, see :func:`statements.replace_sources`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ability_search import statements
from ability_search.collection import Collection
from ability_search.documents import Vector
from ability_search.ports import Store

Row = dict[str, Any]

_PROBES = 32
"""Neighbours asked for by one statement."""
_NEIGHBOURS = 10
"""Enough that chunks about to be replaced seldom hide one that stays."""
_ROUNDING = 1e-6
"""How far the cosine of equal vectors of seven decimals may fall below 1."""


@dataclass(frozen=True, slots=True)
class Deduplication:
    """When a chunk is a duplicate, and how its neighbours are looked for.

    Attributes:
        threshold: Least cosine of a duplicate and the chunk that stands for it, in (0, 1].
        beam: Width of the beam of the graph search.
        scan_below: Chunks below which embeddings are scanned although there is a graph.
    """

    threshold: float
    beam: int
    scan_below: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The duplicates among some rows.

    Attributes:
        stand_ins: The chunkId that stands for each duplicate, by the duplicate's own.
        stored: The stand-ins that are in the database already, with their ``createdAt``.
    """

    stand_ins: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)

    def set_aside(self, row: Row) -> Row:
        """The row as it is stored: a duplicate spares what the indexes would hold of it."""
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
    """Find the rows whose text the collection holds already, or an earlier row.

    What is stored of the rows' own sources does not count, since the rows replace it. A stand-in
    never is a duplicate itself. Of several stored neighbours the nearest stands in, of several
    rows the first.

    Args:
        store: The database.
        collection: Where the rows go.
        rows: Whole rows of chunks, embeddings included.
        rule: What a duplicate is.

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
    """The stored stand-in (``chunkId, source, createdAt, cosine``) of each row that has one."""
    replaced = {row["source"] for row in rows}
    least = rule.threshold - _ROUNDING
    found: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(rows), _PROBES):
        part = rows[start : start + _PROBES]
        answer = await store.read(
            *statements.nearest(
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
    """The candidates that repeat an earlier one, each with the first that it repeats.

    Args:
        vectors: Unit vectors, shape (n, d).
        candidates: Rows of ``vectors``, ascending; those found to repeat another do not stand in.
        least: Least cosine of a repetition.
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
