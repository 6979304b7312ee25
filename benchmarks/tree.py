"""A directory of mixed files: the first time, with 1 % changed, with nothing changed, watched."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks import trees
from benchmarks.embedder import InstantEmbedder
from benchmarks.network import Network, cpu_ms, resident_mb, running

_CHANGED = 0.01
_IDLE_SECONDS = 20.0
_START_SECONDS = 600.0


async def measure(*, files: int) -> dict[str, Any]:
    """Index, change and index again: by the command, by the worker; then watch; all in seconds.

    The embedder costs next to nothing, so that the first time is no longer than it has to be.
    """
    embedder = InstantEmbedder()
    with tempfile.TemporaryDirectory(prefix="ability-search-tree-") as directory:
        root = Path(directory, "tree")
        paths = trees.write(root, files)
        rng = random.Random(7)
        async with running(
            "--no-models", tools=[embedder.tool], environ={"SEARCH_ALLOWED_ROOTS": directory}
        ) as network:
            idle = network.resident_mb("worker-1")

            async def rounds(index: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
                return await _rounds(network, paths, rng, index, embedder)

            return {
                "files": files,
                "megabytes": round(sum(path.stat().st_size for path in paths) / 1e6, 1),
                "index": await rounds(lambda: _command(network, root)),
                "search-index-file": await rounds(lambda: _by_worker(network, root)),
                "worker's memory before and after, MB": [
                    round(idle),
                    round(network.resident_mb("worker-1")),
                ],
                "watch": await _watch(network, root),
            }


async def _rounds(
    network: Network,
    paths: list[Path],
    rng: random.Random,
    index: Callable[[], Awaitable[dict[str, Any]]],
    embedder: InstantEmbedder,
) -> dict[str, Any]:
    async def timed() -> dict[str, Any]:
        started, used, texts = time.perf_counter(), _processor(network), embedder.texts
        told = await index()
        return {
            "seconds": round(time.perf_counter() - started, 2),
            "processor seconds": round(_processor(network) - used, 2),
            "texts embedded": embedder.texts - texts,
            **told,
        }

    first = await timed()
    again = await timed()
    for path in rng.sample(paths, max(1, int(_CHANGED * len(paths)))):
        trees.rewrite(path, rng)
    changed = await timed()
    return {
        "first": first,
        "nothing changed": again,
        "1 % changed": changed,
        "1 % changed / first": round(changed["seconds"] / first["seconds"], 4),
        "1 % changed / first, processor": round(
            changed["processor seconds"] / first["processor seconds"], 4
        ),
    }


def _processor(network: Network) -> float:
    """Seconds of processor time used so far, by the stack and by commands that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(network.cpu_ms().values()) / 1e3 + ended.ru_utime + ended.ru_stime


async def _command(network: Network, root: Path) -> dict[str, Any]:
    """One run of the command, with the memory that it takes at most."""
    process = await _ability_search(network, "index", str(root), "-c", "by-command", "--json")
    peak, reading = 0.0, asyncio.create_task(process.communicate())
    while not reading.done():
        peak = max(peak, resident_mb(process.pid))
        await asyncio.wait([reading], timeout=0.2)
    return _told(json.loads(reading.result()[0])) | {"memory at most, MB": round(peak)}


async def _by_worker(network: Network, root: Path) -> dict[str, Any]:
    return _told(await network.call("search-index-file", collection="by-worker", path=str(root)))


def _told(answer: dict[str, Any]) -> dict[str, Any]:
    counts = {name: answer[name] for name in ("added", "updated", "unchanged", "chunks")}
    return {**counts, "skipped": len(answer["skipped"])}


async def _watch(network: Network, root: Path) -> dict[str, Any]:
    """What it costs to begin where nothing changed, and to wait."""
    started = time.perf_counter()
    process = await _ability_search(network, "watch", str(root), "-c", "by-command", "--json")
    try:
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
        began = time.perf_counter() - started
        before = cpu_ms(process.pid)
        await asyncio.sleep(_IDLE_SECONDS)
        idle = cpu_ms(process.pid) - before
        return {
            "ready after, seconds": round(began, 2),
            "processor until then, seconds": round(before / 1e3, 2),
            "processor when idle, ms a second": round(idle / _IDLE_SECONDS, 2),
            "memory, MB": round(resident_mb(process.pid)),
        }
    finally:
        process.terminate()
        await process.wait()


async def _ability_search(network: Network, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ability_search", *arguments, "--broker", network.url),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ},
    )
