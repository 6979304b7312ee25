"""What an agent's small query takes beside the heavy calls of another agent."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks import texts
from benchmarks.embedder import InstantEmbedder
from benchmarks.latency import load, settled
from benchmarks.network import Network, running
from kadi_client import Connection, KadiError

_FEW = 200
"""Minimum number of small queries beside each heavy caller, for a 99th percentile."""
_PHRASINGS = texts.queries(9, seed=77)

HEAVY: dict[str, tuple[int, dict[str, Any]]] = {
    "16 of 1,000 hits, explained": (16, {"collection": "*", "limit": 1000, "explain": True}),
    "8 with 100 globs": (8, {"sources": [f"text-*{number}*/**" for number in range(100)]}),
    "8 with 120 $contains": (
        8,
        {"filter": {"$or": [{"title": {"$contains": f"no {n}"}} for n in range(120)]}},
    ),
    "4 with 8 phrasings": (4, {"limit": 1000, "explain": True, "queries": _PHRASINGS[1:]}),
    "8 of 1,000 with sections": (
        8,
        {"limit": 1000, "expand": "section", "highlights": True, "prf": True, "fullText": {}},
    ),
    "2 of 1,000 documents": (2, {"tool": "search-index"}),
}
"""The heavy callers: how many calls run at a time, and what is special about them."""


async def measure(*, chunks: int, queries: int, seconds: float) -> dict[str, Any]:
    """Query on an idle stack, beside each heavy caller, and right after its calls were cancelled.

    Args:
        chunks: Chunks in the collection.
        queries: Small queries on the idle stack.
        seconds: Duration of each heavy load.
    """
    async with running("--no-models", tools=[InstantEmbedder().tool]) as network:
        await load(network, chunks)
        report: dict[str, Any] = {"settled after, seconds": await settled(network)}
        for _ in range(3):
            idle = await _small_queries(network, count=queries)
        report["idle"] = _percentiles(idle)
        for name in HEAVY:
            async with _heavy_caller(network, name) as caller:
                await asyncio.sleep(2.0)
                beside = await _small_queries(network, count=_FEW, seconds=seconds)
                caller.terminate()
                after = await _small_queries(network, count=1)
            found = _percentiles(beside)
            report[name] = {
                **found,
                "99th percentile / idle": round(
                    found["99th percentile ms"] / report["idle"]["99th percentile ms"], 1
                ),
                "first answer after its end, ms": round(after[0], 1),
                "worker resident MB": round(network.resident_mb("worker-1"), 1),
                "heavy calls": json.loads(await caller.stdout.read()) if caller.stdout else None,
            }
            await settled(network)
        return report


async def _small_queries(network: Network, *, count: int, seconds: float = 0.0) -> list[float]:
    """Query one after another, so many times and so long; milliseconds of each."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    wanted = texts.queries(1000, seed=5)
    while len(took) < count or time.perf_counter() < end:
        began = time.perf_counter()
        await network.call("search-query", collection="bench", query=wanted[len(took) % 1000])
        took.append((time.perf_counter() - began) * 1e3)
    return took


def _percentiles(took: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    return {
        "queries": len(took),
        "median ms": round(statistics.median(took), 1),
        "99th percentile ms": round(ordered[min(len(took) - 1, int(len(took) * 0.99))], 1),
        "longest ms": round(ordered[-1], 1),
    }


@asynccontextmanager
async def _heavy_caller(network: Network, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a heavy caller in a process of its own, as it also reads large answers."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.neighbours", network.url, name),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
        env=os.environ,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _call_heavily(url: str, name: str) -> None:
    """Keep the calls of a heavy caller running until this process is terminated."""
    count, options = HEAVY[name]
    answers: dict[str, int] = {}
    slowest = 0.0

    async def repeat(connection: Connection) -> None:
        nonlocal slowest
        while True:
            wanted = {"collection": "bench", "query": _PHRASINGS[0], **options}
            tool = wanted.pop("tool", "search-query")
            if tool == "search-index":
                documents = texts.documents(1000, seed=random.randrange(1 << 30))
                wanted = {"collection": "neighbour", "documents": list(documents)}
            began = time.perf_counter()
            try:
                await connection.invoke(tool, wanted, timeout=120)
                outcome = "ok"
            except KadiError as exc:
                outcome = str(exc)[:80]
            slowest = max(slowest, time.perf_counter() - began)
            answers[outcome] = answers.get(outcome, 0) + 1

    async with Connection(url, name="heavy") as connection:
        loop = asyncio.get_running_loop()
        calls = asyncio.gather(*(repeat(connection) for _ in range(count)))
        loop.add_signal_handler(15, calls.cancel)
        with suppress(asyncio.CancelledError):
            await calls
    print(json.dumps({**answers, "slowest seconds": round(slowest, 2)}))


if __name__ == "__main__":
    asyncio.run(_call_heavily(*sys.argv[1:]))
