"""A stack that nobody uses: the memory of its processes, and how long it takes to start (Linux)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from ability_search.config.loader import load_settings
from benchmarks.network import cpu_ms
from kadi_localnet.database.class_cache import class_file, class_options, write_classes

_ROUNDS = 3
_SETTLED = 40.0
"""Seconds after the start: what was freed has gone back to the system, see `heartbeat`."""
_START_SECONDS = 240.0
Memory = dict[str, dict[str, float]]


async def measure() -> dict[str, Any]:
    """Start the stack several times over a fresh directory; return the medians.

    What a first start keeps for later ones is there: the graph of the model, the classes of the
    engine, compiled modules.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    classes = class_file(load_settings(os.environ, Path.cwd()).files.cache_dir)
    if not class_options(classes):
        await write_classes(classes)
    await _start(settled=0)
    rounds = [await _start(settled=_SETTLED) for _ in range(_ROUNDS)]
    return {
        "seconds until ready": _median(each["seconds until ready"] for each in rounds),
        "memory": {
            name: {
                key: _median(each["memory"][name][key] for each in rounds)
                for key in rounds[0]["memory"][name]
            }
            for name in rounds[0]["memory"]
        },
    }


async def _start(*, settled: float) -> dict[str, Any]:
    """Start a stack; return the seconds until it is ready, and its memory some time after."""
    with tempfile.TemporaryDirectory(prefix="ability-search-idle-") as directory:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ability_search", "up", "--data-dir", directory),
            *("--port", str(_free_port()), "--models-port", "0", "--gateway-port", "0"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(_START_SECONDS):
                async for line in process.stdout:
                    if line.startswith(b"ready"):
                        break
            seconds = time.monotonic() - began
            names = {process.pid: "supervisor", **_processes(Path(directory))}
            spent = {name: cpu_ms(pid) / 1000 for pid, name in names.items()}
            await asyncio.sleep(settled)
            return {"seconds until ready": seconds, "memory": _memory(names, spent)}
        finally:
            process.terminate()
            await process.communicate()


def _processes(directory: Path) -> dict[int, str]:
    """Return the names of the parts in each process by its id."""
    state = json.loads((directory / "stack.json").read_text())
    names: dict[int, str] = {}
    for part in state["parts"]:
        before = names.get(part["pid"])
        names[part["pid"]] = f"{before}, {part['name']}" if before else part["name"]
    return names


def _memory(names: Mapping[int, str], spent: Mapping[str, float]) -> Memory:
    """Return what each process holds, and the processor time that it spent until it was ready."""
    found: Memory = {}
    for pid, name in names.items():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        found[name] = {
            "proportional, MB": kilobytes["Pss"] / 1024,
            "resident, MB": kilobytes["Rss"] / 1024,
            "processor until ready, s": spent[name],
        }
    parts = list(found.values())
    found["all"] = {key: sum(each[key] for each in parts) for key in parts[0]}
    return found


def _median(values: Iterable[float]) -> float:
    return round(median(values), 2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
