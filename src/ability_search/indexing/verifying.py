"""Verification of a new generation before it goes live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import Unverified
from ability_search.ports import Store
from ability_search.store import arcadedb

_PAGE = 2000
"""Chunks whose vectors are checked in one statement."""
_SAMPLE = 5
_NEIGHBOURS = 10
_NEAR = 0.001
"""Tolerance by which the best score may fall below a chunk's score with itself."""


async def verify(store: Store, built: Collection, *, beam: int, scan_below: int) -> None:
    """Verify the counts, check every vector, and search for a sample of chunks.

    Args:
        store: The database.
        built: The generation, with its graph.
        beam: Beam width of the graph search.
        scan_below: Number of chunks below which embeddings are scanned, as in queries.

    Raises:
        Unverified: if the generation does not match its record.
        DatabaseUnavailable: if the database did not answer.
    """
    counted = await store.read(*arcadedb.count_sources(built.type))
    _same("sources", counted["sources"], built.sources)
    _same("chunks", counted["chunks"], built.chunks)
    ordinary = built.chunks - built.aspects
    await _verify_type(store, built.type, ordinary, built.dimensions)
    if built.aspects:
        aspects = arcadedb.aspect_type(built.type)
        await _verify_type(store, aspects, built.aspects, built.dimensions)
    exact = built.scanned(below=scan_below)
    for row in await store.read(*arcadedb.sample_chunks(built.type, limit=_SAMPLE)):
        await _verify_found(store, built, row, beam=beam, exact=exact)


async def _verify_type(store: Store, chunk_type: str, chunks: int, dimensions: int) -> None:
    floor, checked, unfit = "", 0, 0
    while True:
        page = await store.read(
            *arcadedb.check_vectors(chunk_type, dimensions=dimensions, after=floor, limit=_PAGE)
        )
        if not page["checked"]:
            break
        floor = page["last"]
        checked += page["checked"]
        unfit += page["unfit"]
    _same("chunks", checked, chunks)
    if unfit:
        raise Unverified(f"the vectors of {unfit} chunks are unusable")


async def _verify_found(
    store: Store, built: Collection, row: dict[str, Any], *, beam: int, exact: bool
) -> None:
    """Search for a chunk by its own vector and its own terms; an equal chunk counts, too."""
    arm = arcadedb.VectorArm("vector", row["embedding"], _NEIGHBOURS, beam, exact)
    found = await store.read(*arcadedb.candidates(built.name, built.type, [arm]))
    if not _reaches(found["vector"], 1.0):
        raise Unverified(f"chunk {row['chunkId']} is not found by semantic search")
    if not await found_by_words(store, built, row):
        raise Unverified(f"chunk {row['chunkId']} is not found by keyword search")


async def found_by_words(store: Store, collection: Collection, row: Mapping[str, Any]) -> bool:
    """Return True if keyword search finds a chunk, or an equal one, by its own terms.

    Args:
        store: The database.
        collection: The collection of the chunk.
        row: ``terms`` and ``weights`` of the chunk; without terms the result is True.
    """
    if not row["terms"]:
        return True
    arm = arcadedb.TermsArm("words", row["terms"], row["weights"], _NEIGHBOURS)
    found = await store.read(*arcadedb.candidates(collection.name, collection.type, [arm]))
    return _reaches(found["words"], sum(weight * weight for weight in row["weights"]))


def _reaches(rows: Sequence[dict[str, Any]], score: float) -> bool:
    return bool(rows) and rows[0]["score"] >= score * (1 - _NEAR)


def _same(what: str, stored: int, recorded: int) -> None:
    if stored != recorded:
        raise Unverified(f"{stored} of {recorded} {what} are stored")
