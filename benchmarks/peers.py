"""Latency and recall beside LanceDB and tantivy, on the same texts and vectors in the same run.

The peers run in a process of their own, in a virtual environment that the first run creates in the
cache directory. They are libraries and called in their process, as by their users; ours is measured
at a client, over the broker. All return ten hits with their texts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
import venv
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import latency, texts
from benchmarks.embedder import InstantEmbedder
from benchmarks.network import Network, running
from benchmarks.vectors import vector_of

_PACKAGES = "lancedb==0.40.0", "tantivy==0.27.0", "numpy==2.4.6"
_PROCESS = Path(__file__).with_name("peer_process.py")
_MODES = "hybrid", "semantic", "keyword"
_OURS = "ability-search"
_UNPREFIXED = {"SEARCH_EMBEDDING_MODEL": "instant"}
"""A model without prefixes for queries and texts: all engines get the same vectors."""
_HITS = 10
_CLIENTS = 8
_WARMING = 500
"""Queries of a round before the measurement: the JVM compiles during some thousand queries."""
_LONGEST_LINE = 2**24
"""Bytes of an answer of the peers' process."""


async def measure(*, chunks: int, queries: int, rounds: int) -> dict[str, Any]:
    """Load ``chunks`` into all, then query them in turn, round by round.

    Returns by mode and engine the median, 95th and 99th percentile in milliseconds and the
    processor time of a query, the ratio of the medians to ours, and in semantic mode the share of
    the true ten nearest that were found; of ours also what eight clients get at a time.
    """
    embedder = InstantEmbedder()
    async with (
        running("--no-models", tools=[embedder.tool], environ=_UNPREFIXED) as network,
        _peers(chunks) as peers,
    ):
        loaded = {_OURS: await latency.load(network, chunks), **await peers({"do": "load"})}
        settled = await latency.settled(network)
        for mode in _MODES:
            await latency.warmed_up(network, mode, max(queries, _WARMING))
        await _round(network, peers, texts.queries(queries, seed=99))  # the peers warm up, too
        measured = [
            await _round(network, peers, texts.queries(queries, seed=100 + number))
            for number in range(rounds)
        ]
        together = {
            mode: await _together(network, mode, texts.queries(_CLIENTS * queries, seed=7))
            for mode in _MODES
        }
        nearest = _nearest(texts.queries(queries, seed=100), chunks)
    summary = {mode: _summary(mode, measured, nearest) for mode in _MODES}
    for mode in _MODES:
        summary[mode][_OURS][f"{_CLIENTS} clients"] = together[mode]
    return {
        "chunks": chunks,
        "load": loaded,
        "settled after, seconds": settled,
        **summary,
    }


async def _together(network: Network, mode: str, asked: Sequence[str]) -> dict[str, Any]:
    """Query for several clients at a time; queries a second, and the processor time of one."""
    waiting, taken = list(asked), []

    async def client() -> None:
        while waiting:
            taken.append((await latency.timed_query(network, mode, waiting.pop()))[0])

    before, started = network.cpu_ms(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(_CLIENTS)))
    seconds, after = time.perf_counter() - started, network.cpu_ms()
    used = {part: round((after[part] - before[part]) / len(asked), 2) for part in after}
    return {
        "queries a second": round(len(asked) / seconds, 1),
        "median ms": round(median(taken), 2),
        "processor ms a query": {"all": round(sum(used.values()), 2), **used},
    }


_Round = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By mode and engine: ``ms`` and ``sources`` of each query, and ``processor`` of a query."""


async def _round(network: Network, peers: Any, asked: Sequence[str]) -> _Round:
    found: dict[str, dict[str, Any]] = {}
    for mode in _MODES:
        before = network.cpu_ms()
        answers = [await latency.timed_query(network, mode, text) for text in asked]
        after = network.cpu_ms()
        found[mode] = {
            _OURS: {
                "ms": [taken for taken, _ in answers],
                "sources": [[hit["source"] for hit in each["results"]] for _, each in answers],
                "processor": sum(after[part] - before[part] for part in after) / len(asked),
            },
            **await peers({"do": "query", "mode": mode, "queries": asked}),
        }
    return found


def _summary(
    mode: str, rounds: Sequence[_Round], nearest: Sequence[Sequence[str]]
) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for engine in rounds[0][mode]:
        own = [each[mode][engine] for each in rounds]
        summary[engine] = {
            "median ms": round(median(median(each["ms"]) for each in own), 2),
            **{
                f"{share}th percentile ms": round(
                    float(np.percentile([ms for each in own for ms in each["ms"]], share)), 2
                )
                for share in (95, 99)
            },
            "processor ms a query": round(median(each["processor"] for each in own), 2),
        }
        ratios = [
            median(each[mode][_OURS]["ms"]) / median(each[mode][engine]["ms"]) for each in rounds
        ]
        summary[engine]["ours / this, of the medians"] = round(median(ratios), 2)
        if mode == "semantic":
            hits = zip(own[0]["sources"], nearest, strict=True)
            shares = [len({*found} & {*true}) / _HITS for found, true in hits]
            summary[engine][f"recall@{_HITS}"] = round(sum(shares) / len(shares), 3)
    return summary


def _nearest(asked: Sequence[str], chunks: int) -> list[list[str]]:
    """Return the sources of the true nearest neighbours of each query."""
    documents = list(texts.documents(chunks))
    stored = _unit(np.stack([vector_of(str(each["content"])) for each in documents]))
    wanted = _unit(np.stack([vector_of(text) for text in asked]))
    best = np.argsort(-(wanted @ stored.T), axis=1)[:, :_HITS]
    return [[str(documents[place]["source"]) for place in row] for row in best]


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@asynccontextmanager
async def _peers(chunks: int) -> AsyncIterator[Any]:
    """Start the process of the peers; yield a function that sends it a request."""
    python = await _environment()
    with tempfile.TemporaryDirectory(prefix="ability-search-peers-") as directory:
        process = await asyncio.create_subprocess_exec(
            str(python),
            str(_PROCESS),
            directory,
            str(chunks),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": str(_PROCESS.parent.parent), "LANCEDB_LOG": "error"},
        )
        assert process.stdin is not None and process.stdout is not None
        source, sink = process.stdout, process.stdin

        async def request(asked: Mapping[str, Any]) -> dict[str, Any]:
            sink.write(json.dumps(asked).encode() + b"\n")
            await sink.drain()
            line = await source.readline()
            if not line:
                raise RuntimeError("the process of the peers has ended: see its error above")
            answer: dict[str, Any] = json.loads(line)
            return answer

        try:
            yield request
        finally:
            sink.close()
            await process.wait()


async def _environment() -> Path:
    """Return the interpreter of the peers' environment, created if it is missing or outdated."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "ability-search" / "peers"
    python, installed = directory / "bin" / "python", directory / "installed.txt"
    if not installed.exists() or installed.read_text() != "\n".join(_PACKAGES):
        print(f"installing {', '.join(_PACKAGES)} into {directory}", file=sys.stderr)
        await asyncio.to_thread(venv.create, directory, clear=True, with_pip=True)
        process = await asyncio.create_subprocess_exec(
            str(python), "-m", "pip", "install", "--quiet", *_PACKAGES, stdout=sys.stderr
        )
        if await process.wait():
            raise RuntimeError(f"{', '.join(_PACKAGES)} cannot be installed: pip needs an index")
        installed.write_text("\n".join(_PACKAGES))
    return python
