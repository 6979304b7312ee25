"""What indexing costs beyond the embedder's own time, with the real model."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from ability_search.text.token_counter import EstimatedTokens
from benchmarks import texts
from benchmarks.network import Network, running
from benchmarks.warming import is_warming

_BATCH = 64


async def measure(*, chunks: int, rounds: int) -> dict[str, Any]:
    """Embed texts alone, then index others of the same kind; the ratio of the two, per round.

    That of the processor time of all parts is reported too: it says the same, without the moments
    in which the model waits, and holds on a machine that has other things to do.
    """
    async with running() as network:
        await _embed(network, list(texts.documents(_BATCH, seed=9)))
        warming = await _warmed_up(network, chunks)
        ratios, alone, indexed, used = [], [], [], []
        for number in range(rounds):
            first = list(texts.documents(chunks, seed=10 + number))
            second = list(texts.documents(chunks, seed=50 + number))
            before = network.cpu_ms()
            alone.append(await _embed(network, first))
            between = network.cpu_ms()
            indexed.append(await _index(network, f"bench-{number}", second))
            after = network.cpu_ms()
            ratios.append(indexed[-1] / alone[-1])
            used.append(
                {part: (after[part] - between[part]) / chunks for part in after}
                | {"alone": (between["models"] - before["models"]) / chunks}
            )
        count = EstimatedTokens()
        return {
            "chunks": chunks,
            "tokens a chunk, about": count.count(str(first[0]["content"])),
            "indexing before, seconds": [round(value, 2) for value in warming],
            "embedding alone, seconds": [round(value, 2) for value in alone],
            "indexing, seconds": [round(value, 2) for value in indexed],
            "indexing / embedding alone, median": round(statistics.median(ratios), 3),
            "the same of processor time, median": round(
                statistics.median(_others(each) / each["alone"] for each in used), 3
            ),
            "processor, ms a chunk, median": {
                part: round(statistics.median(each[part] for each in used), 2) for part in used[0]
            },
            "chunks a second, indexed": round(chunks / statistics.median(indexed), 1),
        }


async def _warmed_up(network: Network, chunks: int) -> list[float]:
    """Index until that gets no faster; the seconds of each round."""
    seconds: list[float] = []
    while is_warming(seconds):
        number = len(seconds)
        documents = list(texts.documents(chunks, seed=1000 + number))
        seconds.append(await _index(network, f"before-{number}", documents))
    return seconds


def _others(used: dict[str, float]) -> float:
    return sum(value for part, value in used.items() if part != "alone")


async def _embed(network: Network, documents: list[dict[str, object]]) -> float:
    """Seconds to embed the texts as the worker would, two requests at a time."""
    gate = asyncio.Semaphore(2)

    async def request(part: list[dict[str, object]]) -> None:
        async with gate:
            await network.call(
                "create-embedding",
                model="all-MiniLM-L6-v2",
                input=[f"{item['title']}\n{item['content']}" for item in part],
                encoding_format="base64",
            )

    started = time.perf_counter()
    await asyncio.gather(
        *(request(documents[at : at + _BATCH]) for at in range(0, len(documents), _BATCH))
    )
    return time.perf_counter() - started


async def _index(network: Network, name: str, documents: list[dict[str, object]]) -> float:
    started = time.perf_counter()
    await network.call("search-index", collection=name, documents=documents)
    return time.perf_counter() - started
