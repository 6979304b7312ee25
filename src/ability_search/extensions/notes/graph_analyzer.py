"""The graph analyzer: measures the graph of a collection, and stores scores for queries."""

from __future__ import annotations

import asyncio
import importlib.util
import time

import numpy as np

from ability_search.collection import Collection
from ability_search.documents import Vector
from ability_search.errors import InvalidInput, TooLarge
from ability_search.extensions.notes.graph_analysis import GraphAnalysis, NoteChunk
from ability_search.extensions.notes.note_links import read_sources
from ability_search.index.index_calls import Report
from ability_search.store.pages import read_pages
from ability_search.store.port import Store
from ability_search.store.values import Chunks, Columns, Patch, Read

LIMIT = 100_000
"""Chunks that can be analysed."""
_PAGE_NUMBERS = 200_000
"""Numbers of vectors in a page."""
_SCORES = 1000
"""Rows written at a time."""
_COLUMNS = ("chunk_id", "source", "title", "breadcrumb", "chunk_index", "embedding")


async def analyze(store: Store, collection: Collection, report: Report) -> GraphAnalysis:
    """Measure the graph of a collection, and store the scores of its chunks.

    Args:
        store: The store.
        collection: The collection; what is indexed meanwhile may be left out.
        report: Receives the progress.

    Raises:
        InvalidInput: if the extra ``analysis`` is not installed.
        TooLarge: if it has more than :data:`LIMIT` chunks.
        GenerationGone: if it is rebuilt or deleted meanwhile.
    """
    started = time.perf_counter()
    check_analysable(collection, "notes-analyze")
    chunks, vectors = await read_chunks(store, collection, report)
    sources = await read_sources(store, collection)
    await report_progress(report, collection, len(chunks), "measuring")

    def measured() -> tuple[GraphAnalysis, list[Patch]]:
        # Loading scipy takes a moment, and workers may be without it.
        from ability_search.extensions.notes.collection_measures import measure

        return measure(chunks, vectors, sources, collection.revision)

    analysis, scores = await asyncio.to_thread(measured)
    await report_progress(report, collection, len(chunks), "storing")
    for begin in range(0, len(chunks), _SCORES):
        await store.patch(collection, scores[begin : begin + _SCORES])
    took = round(1e3 * (time.perf_counter() - started), 1)
    return analysis.model_copy(update={"took_ms": took})


def check_analysable(collection: Collection, tool: str) -> None:
    """Check that the chunks of a collection can be compared by this worker.

    Raises:
        InvalidInput: if the extra ``analysis`` is not installed; it names ``tool``.
        TooLarge: if there are more than :data:`LIMIT` chunks.
    """
    if importlib.util.find_spec("scipy") is None:
        raise InvalidInput(
            tool,
            "the worker has no scipy, which analyses need",
            hint="Run where the worker is installed: pip install 'ability-search[analysis]'",
        )
    if collection.chunks > LIMIT:
        raise TooLarge(
            f"{collection.public_name} has {collection.chunks} chunks; at most {LIMIT} can be"
            " analysed",
            hint="Analyse a smaller collection.",
        )


async def read_chunks(
    store: Store, collection: Collection, report: Report, *, texts: bool = False
) -> tuple[list[NoteChunk], Vector]:
    """Return the indexed chunks by chunkId, and their vectors, shape (n, d).

    Args:
        store: The store.
        collection: The collection.
        report: Receives the progress.
        texts: Whether to read the texts too.
    """
    chunks: list[NoteChunk] = []
    parts: list[Vector] = [np.zeros((0, collection.dimensions), dtype=np.float32)]
    limit = max(1, _PAGE_NUMBERS // collection.dimensions)
    columns = Columns((*_COLUMNS, "content") if texts else _COLUMNS)
    async for page in read_pages(store, Read(Chunks(indexed=True), collection, columns, limit)):
        if not page.items:
            break
        for row in page.items:
            key, source, place = row["chunk_id"], row["source"], row["chunk_index"]
            title = row["breadcrumb"] or row["title"]
            chunks.append(NoteChunk(key, source, title, place, row.get("content", "")))
        parts.append(np.array([row["embedding"] for row in page.items], dtype=np.float32))
        await report_progress(report, collection, len(chunks), "reading")
    return chunks, np.concatenate(parts)


async def report_progress(report: Report, collection: Collection, done: int, stage: str) -> None:
    """Report the progress of an analysis, in chunks."""
    await report(done, collection.chunks, stage)
