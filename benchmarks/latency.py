"""Latency of queries over the broker, without their embedding, beside 20,000 chunks."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks import texts
from benchmarks.embedder import InstantEmbedder
from benchmarks.network import Network, running
from benchmarks.vectors import vector_of
from benchmarks.warming import is_warming

_BATCH = 500
_SETTLE_SECONDS = 180.0
_LOOK_SECONDS = 20.0
"""Longer than the engine waits after the last write before it begins."""


async def measure(*, chunks: int, queries: int, rounds: int) -> dict[str, Any]:
    """Load ``chunks``, query at once, then in rounds; milliseconds end to end at the client."""
    embedder = InstantEmbedder()
    async with running("--no-models", tools=[embedder.tool]) as network:
        idle = {part: round(network.resident_mb(part), 1) for part in network.processes}
        loaded = await load(network, chunks)
        loaded["embedder seconds"] = round(embedder.seconds, 1)
        first, answer = await timed_query(network, "hybrid", texts.queries(1)[0])
        result: dict[str, Any] = {
            "idle resident MB": idle,
            "load": loaded,
            "first query after the load, ms": round(first, 1),
            "its steps, ms": answer["timings"],
            "settled after, seconds": await settled(network),
        }
        for mode in ("hybrid", "semantic", "keyword"):
            warming = await warmed_up(network, mode, queries)
            result[mode] = {
                "median ms of each round before": warming,
                **await measured_rounds(network, mode, queries, rounds),
            }
        result["loaded resident MB"] = {
            part: round(network.resident_mb(part), 1) for part in network.processes
        }
        return result


async def load(network: Network, chunks: int) -> dict[str, Any]:
    """Index as many documents of one chunk each; how long it took.

    Their texts and vectors are made before, as those of the peers are.
    """
    documents = list(texts.documents(chunks))
    for each in documents:
        vector_of(str(each["content"]))
    before, started = network.cpu_ms(), time.perf_counter()
    for start in range(0, chunks, _BATCH):
        batch = documents[start : start + _BATCH]
        await network.call("search-index", collection="bench", documents=batch)
    seconds = time.perf_counter() - started
    return {
        "chunks": chunks,
        "seconds": round(seconds, 1),
        "ms a chunk": round(seconds / chunks * 1e3, 2),
        "processor ms a chunk": _per(network, before, chunks),
    }


async def settled(network: Network, *, most: float = _SETTLE_SECONDS) -> float:
    """Wait until the engine has finished its vector graph in the background; seconds it took."""
    started = time.perf_counter()
    busy = True
    while busy and time.perf_counter() - started < most:
        before = network.cpu_ms()["database"]
        await asyncio.sleep(_LOOK_SECONDS)
        busy = network.cpu_ms()["database"] - before > 0.1e3 * _LOOK_SECONDS
    return round(time.perf_counter() - started, 1)


async def warmed_up(network: Network, mode: str, queries: int) -> list[float]:
    """Query until that gets no faster; the median of each round."""
    medians: list[float] = []
    while is_warming(medians):
        warming = await measured_rounds(network, mode, queries, 1, seed=1000 + len(medians))
        medians.append(warming["median ms"])
    return medians


async def measured_rounds(
    network: Network, mode: str, queries: int, rounds: int, *, seed: int = 3
) -> dict[str, Any]:
    """Median over the rounds of each round's median and 95th percentile."""
    medians, tails, steps = [], [], []
    before = network.cpu_ms()
    for number in range(rounds):
        taken = [
            await timed_query(network, mode, text)
            for text in texts.queries(queries, seed=seed + number)
        ]
        times = sorted(each for each, _ in taken)
        medians.append(statistics.median(times))
        tails.append(times[int(len(times) * 0.95)])
        steps += [answer["timings"] for _, answer in taken]
    return {
        "median ms": round(statistics.median(medians), 2),
        "median ms of each round": [round(value, 2) for value in medians],
        "95th percentile ms": round(statistics.median(tails), 2),
        "worker's steps, median ms": {
            step: round(statistics.median(timings.get(step, 0.0) for timings in steps), 2)
            for step in dict.fromkeys(step for timings in steps for step in timings)
        },
        "processor ms a query": _per(network, before, queries * rounds),
    }


async def timed_query(network: Network, mode: str, text: str) -> tuple[float, dict[str, Any]]:
    """Query once; return the milliseconds at the client without the embedding, and the answer."""
    started = time.perf_counter()
    answer = await network.call("search-query", collection="bench", query=text, mode=mode)
    taken = (time.perf_counter() - started) * 1e3
    return taken - answer["timings"].get("embed", 0.0), answer


def _per(network: Network, before: dict[str, float], count: int) -> dict[str, float]:
    after = network.cpu_ms()
    return {part: round((after[part] - before[part]) / count, 2) for part in after}
