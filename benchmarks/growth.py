"""More workers and brokers: load with kills of each, and what the costs add up to.

Clients query, first alone, then beside a client that writes, then while one process after the other
is killed. Afterwards everything that was acknowledged must be there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks import latency, texts
from benchmarks.embedder import InstantEmbedder
from benchmarks.network import Network, running
from kadi_client import Connection, KadiError

SETUPS = ((1, 1), (2, 1), (4, 1), (2, 3))
"""Workers and brokers."""
_CLIENTS = 8
_PAUSE = 4.0
"""Seconds between two kills."""
_SETTLE_SECONDS = 60.0
_RETURN_SECONDS = 300.0


@dataclass
class Load:
    """What clients saw."""

    taken: list[float] = field(default_factory=list)
    """Milliseconds of the queries that were answered."""
    errors: dict[str, int] = field(default_factory=dict)
    """By their code."""
    acknowledged: set[str] = field(default_factory=set)
    last: float = 0.0
    gap: float = 0.0
    """Longest time in which no query was answered, in seconds."""

    def answered(self, started: float) -> None:
        """Record a query that began at ``started``."""
        now = time.perf_counter()
        self.taken.append((now - started) * 1e3)
        self.gap = max(self.gap, now - self.last)
        self.last = now

    def failed(self, exc: KadiError) -> None:
        """Record an error."""
        code = str(getattr(exc, "code", None) or type(exc).__name__)
        self.errors[code] = self.errors.get(code, 0) + 1


async def measure(*, chunks: int, seconds: float) -> dict[str, Any]:
    """Measure each of :data:`SETUPS` with a collection of ``chunks``, for ``seconds`` a load."""
    return {
        f"{workers} workers, {brokers} brokers": await _measured(
            workers, brokers, chunks=chunks, seconds=seconds
        )
        for workers, brokers in SETUPS
    }


async def _measured(workers: int, brokers: int, *, chunks: int, seconds: float) -> dict[str, Any]:
    options = ["--no-models", "--workers", str(workers), "--brokers", str(brokers)]
    embedder = InstantEmbedder()
    async with running(*options, tools=[embedder.tool]) as network:
        loaded = await latency.load(network, chunks)
        settled = await latency.settled(network, most=_SETTLE_SECONDS)
        warming = await latency.warmed_up(network, "hybrid", 200)
        alone = await latency.measured_rounds(network, "hybrid", 200, 1, seed=99)
        reading, reading_cost = await _costs(network, seconds, writes=False)
        calm, calm_cost = await _costs(network, seconds)
        shaken = Load()
        async with asyncio.TaskGroup() as group:
            group.create_task(_under_load(network, shaken, seconds))
            killed = group.create_task(_kill(network, seconds))
        return {
            "load": loaded,
            "graph, seconds": settled,
            "one client, median ms of each round before": warming,
            "one client, median ms": alone["median ms"],
            "one client, processor ms a query": alone["processor ms a query"],
            "without the writer": _shown(reading, seconds),
            "without the writer, processor ms a query": reading_cost,
            "calm": _shown(calm, seconds),
            "processor ms a query, writes included": calm_cost,
            "with kills": _shown(shaken, seconds),
            "killed": killed.result(),
            "acknowledged, not there": await _missing(
                network, calm.acknowledged | shaken.acknowledged
            ),
        }


async def _costs(
    network: Network, seconds: float, *, writes: bool = True
) -> tuple[Load, dict[str, float]]:
    """Return what clients saw, and the processor time of each part in ms a query.

    ``clients`` is this process, which embeds too.
    """
    load, before, own = Load(), network.cpu_ms(), time.process_time()
    await _under_load(network, load, seconds, writes=writes)
    used = {part: after - before[part] for part, after in network.cpu_ms().items()}
    used["clients"] = (time.process_time() - own) * 1e3
    queries = max(1, len(load.taken))
    return load, {part: round(spent / queries, 2) for part, spent in used.items()}


async def _under_load(network: Network, load: Load, seconds: float, *, writes: bool = True) -> None:
    """Query with some clients, and write with one if ``writes``."""
    until = time.perf_counter() + seconds
    urls = network.url.split(",")

    async def query(client: Connection, number: int) -> None:
        for text in itertools.cycle(texts.queries(200, seed=number)):
            started = time.perf_counter()
            if started > until:
                return
            try:
                await client.invoke("search-query", {"collection": "bench", "query": text})
                load.answered(started)
            except KadiError as exc:
                load.failed(exc)
                await asyncio.sleep(0.05)

    async def write(client: Connection) -> None:
        for number in itertools.count():
            if time.perf_counter() > until:
                return
            source = f"written {id(load)} {number}"
            document = {"source": source, "title": source, "content": f"text of {source}"}
            try:
                await client.invoke(
                    "search-index", {"collection": "bench", "documents": [document]}
                )
                load.acknowledged.add(source)
            except KadiError as exc:
                load.failed(exc)
            await asyncio.sleep(0.1)

    load.last = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(0 if writes else 1, _CLIENTS + 1):
            first = number % len(urls)
            url = ",".join(urls[first:] + urls[:first])
            group.create_task(_connected(url, write if not number else None, query, number))
    load.gap = max(load.gap, time.perf_counter() - load.last)


async def _connected(url: str, write: Any, query: Any, number: int) -> None:
    async with Connection(url, name=f"client {number}") as client:
        await (write(client) if write is not None else query(client, number))


async def _kill(network: Network, seconds: float) -> list[str]:
    """Kill a worker, a broker if there are several, and the database, which are started again."""
    parts = ["worker-1", *(["broker-2"] if "broker-2" in network.processes else []), "database"]
    ended = time.perf_counter() + seconds
    killed = []
    for part in parts:
        if time.perf_counter() + _PAUSE > ended:
            break
        await asyncio.sleep(_PAUSE)
        os.kill(network.processes[part], signal.SIGKILL)
        killed.append(part)
    return killed


async def _missing(network: Network, acknowledged: set[str]) -> int:
    """Return how many of the acknowledged documents are not stored, once the database is back."""
    missing = 0
    async with asyncio.timeout(_RETURN_SECONDS):
        for source in acknowledged:
            while True:
                given = {"collection": "bench", "source": source, "limit": 1}
                try:
                    await network.client.invoke("search-similar", given, timeout=60)
                except KadiError as exc:
                    if getattr(exc, "code", None) != "not_found":
                        await asyncio.sleep(1)
                        continue
                    missing += 1
                break
    return missing


def _shown(load: Load, seconds: float) -> dict[str, Any]:
    times = sorted(load.taken) or [0.0]
    return {
        "queries a second": round(len(load.taken) / seconds, 1),
        "median ms": round(statistics.median(times), 1),
        "99th percentile ms": round(times[int(len(times) * 0.99)], 1),
        "errors": load.errors,
        "longest gap, seconds": round(load.gap, 1),
        "acknowledged writes": len(load.acknowledged),
    }
