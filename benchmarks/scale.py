"""One collection as it grows: what a chunk and a query cost at each size.

A client queries while another loads, so that what a load does to queries is seen as well.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import latency, texts
from benchmarks.embedder import InstantEmbedder
from benchmarks.network import Network, running
from benchmarks.vectors import DIMENSIONS
from kadi_localnet.database.jvm import needed_heap_mb

_BATCH = 500
_PAUSE = 0.2
"""Seconds between queries beside the load."""
_GRAPH_SECONDS = 3600.0


async def measure(*, sizes: Sequence[int], queries: int, rounds: int) -> dict[str, Any]:
    """Grow a collection to each of ``sizes`` in turn; milliseconds end to end at the client."""
    embedder = InstantEmbedder()
    heap = needed_heap_mb([(max(sizes), DIMENSIONS)])
    environ = {"SEARCH_ARCADEDB_HEAP": f"{heap}MiB"}
    documents = texts.documents(max(sizes))
    report: dict[str, Any] = {"heap MiB": heap}
    async with running("--no-models", tools=[embedder.tool], environ=environ) as network:
        before = 0
        for size in sorted(sizes):
            step = await _grow(network, itertools.islice(documents, size - before), size - before)
            step["graph, seconds"] = await latency.settled(network, most=_GRAPH_SECONDS)
            for mode in ("hybrid", "semantic", "keyword"):
                await latency.warmed_up(network, mode, queries)
                step[mode] = await latency.measured_rounds(network, mode, queries, rounds)
            step["resident MB"] = {
                part: round(network.resident_mb(part)) for part in network.processes
            }
            step["disk MB"] = round(_bytes(network.directory) / 1e6)
            report[f"{size} chunks"] = step
            before = size
    return report


async def _grow(network: Network, documents: Iterator[dict[str, object]], count: int) -> Any:
    """Index documents; measure queries beside it."""
    batches = iter(lambda: list(itertools.islice(documents, _BATCH)), [])
    beside: list[float] = []
    started = time.perf_counter()
    await network.call("search-index", collection="bench", documents=next(batches))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_query_on(network, beside))
        for batch in batches:
            await network.call("search-index", collection="bench", documents=batch)
        asking.cancel()
    seconds = time.perf_counter() - started
    half, most = np.percentile(beside, [50, 99])
    return {
        "load, ms a chunk": round(seconds / count * 1e3, 2),
        "queries beside it, ms": {
            "median": round(half, 1),
            "99th percentile": round(most, 1),
            "most": round(max(beside), 1),
        },
    }


async def _query_on(network: Network, taken: list[float]) -> None:
    for number in itertools.count():
        [text] = texts.queries(1, seed=number)
        await asyncio.sleep(_PAUSE)
        milliseconds, _ = await latency.timed_query(network, "hybrid", text)
        taken.append(milliseconds)


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
