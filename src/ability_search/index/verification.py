"""Verification of a new generation before it goes live."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.collection import Collection
from ability_search.documents import SparseVector
from ability_search.errors import Unverified
from ability_search.store.pages import COUNTED, count
from ability_search.store.port import Store
from ability_search.store.records import Row, TermSearch, VectorSearch, WeightedChunk
from ability_search.store.values import Columns, Count, Sources

_PAGE = 2000
"""Chunks whose vectors are checked at once."""
_SAMPLE = 5
_NEIGHBOURS = 10
_NEAR = 0.001
"""Tolerance by which the best score may fall below a chunk's score with itself."""


async def verify(store: Store, built: Collection, *, beam: int, scan_below: int) -> None:
    """Verify the counts, check every vector, and search for a sample of chunks.

    Args:
        store: The store.
        built: The generation, with its graph.
        beam: Beam width of the graph search.
        scan_below: Number of chunks below which embeddings are scanned, as in queries.

    Raises:
        Unverified: if the generation does not match its record.
        DatabaseUnavailable: if the store did not answer.
    """
    counted, every = await count(
        store, Count(Sources(filter=COUNTED), built), Count(Sources(), built, sums=["chunks"])
    )
    _require("sources", counted.groups[None][0], built.sources)
    _require("chunks", every.groups[None][1], built.chunks)
    await _verify_vectors(store, built, built.chunks - built.kind_chunks, kinds=False)
    if built.kind_chunks:
        await _verify_vectors(store, built, built.kind_chunks, kinds=True)
    exact = built.scanned(below=scan_below)
    for chunk in await store.sample_chunks(built.type, limit=_SAMPLE):
        await _verify_found(store, built, chunk, beam=beam, exact=exact)


async def found_by_terms(store: Store, collection: Collection, chunk: WeightedChunk) -> bool:
    """Return True if keyword search finds a chunk, or an equal one, by its own terms.

    Without terms the result is True.
    """
    if not chunk.terms:
        return True
    search = TermSearch("words", SparseVector(chunk.terms, chunk.weights), _NEIGHBOURS)
    found = await store.search(collection, [search], Columns())
    return _reaches(found.value["words"], sum(weight * weight for weight in chunk.weights))


async def _verify_vectors(store: Store, built: Collection, expected: int, *, kinds: bool) -> None:
    after, checked, unfit = "", 0, 0
    while True:
        page = await store.check_vectors(
            built.type, kinds=kinds, dimensions=built.dimensions, after=after, limit=_PAGE
        )
        if page.last is None:
            break
        after = page.last
        checked += page.checked
        unfit += page.unfit
    _require("chunks", checked, expected)
    if unfit:
        raise Unverified(f"the vectors of {unfit} chunks are unusable")


async def _verify_found(
    store: Store, built: Collection, chunk: WeightedChunk, *, beam: int, exact: bool
) -> None:
    """Search for a chunk by its own vector and its own terms; an equal chunk counts, too."""
    search = VectorSearch("vector", chunk.embedding or (), _NEIGHBOURS, beam, exact)
    found = await store.search(built, [search], Columns())
    if not _reaches(found.value["vector"], 1.0):
        raise Unverified(f"chunk {chunk.chunk_id} is not found by semantic search")
    if not await found_by_terms(store, built, chunk):
        raise Unverified(f"chunk {chunk.chunk_id} is not found by keyword search")


def _reaches(rows: Sequence[Row], score: float) -> bool:
    return bool(rows) and rows[0].score >= score * (1 - _NEAR)


def _require(counted: str, stored: int, recorded: int) -> None:
    if stored != recorded:
        raise Unverified(f"{stored} of {recorded} {counted} are stored")
