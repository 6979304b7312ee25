"""The real stack, as ``ability-search up`` starts it, for a measurement."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kadi_client import Connection, Tool

_START_SECONDS = 240.0
_CLOCK_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10.0


@dataclass(frozen=True, slots=True)
class Network:
    """A stack and a client on it."""

    client: Connection
    url: str
    processes: dict[str, int]
    """Process ids by part: broker, database, models, worker-1, ..."""
    directory: Path
    """Where it keeps its data."""

    def resident_mb(self, part: str) -> float:
        """Resident memory of a part in MB (Linux)."""
        return resident_mb(self.processes[part])

    def cpu_ms(self) -> dict[str, float]:
        """Processor time that each process has used so far, in milliseconds (Linux).

        A process has the name of its first part.
        """
        first = {pid: part for part, pid in reversed(self.processes.items())}
        return {part: cpu_ms(pid) for pid, part in first.items()}

    async def call(self, tool: str, /, **tool_input: Any) -> dict[str, Any]:
        """Call a tool that must succeed."""
        answer: dict[str, Any] = await self.client.invoke(tool, tool_input, timeout=600)
        return answer


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (Linux); 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS")), "VmRSS 0")
    return int(line.split()[1]) / 1024


def cpu_ms(pid: int) -> float:
    """Processor time that a process has used so far, in milliseconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _CLOCK_TICK_MS


@asynccontextmanager
async def running(
    *options: str, tools: Iterable[Tool] = (), environ: dict[str, str] | None = None
) -> AsyncIterator[Network]:
    """Start the stack over a fresh directory, with free ports; stop it on leaving.

    Args:
        options: Further options of ``ability-search up``.
        tools: Tools that the client offers, in place of a part left out.
        environ: Further settings.
    """
    with tempfile.TemporaryDirectory(prefix="ability-search-bench-") as directory:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ability_search",
            "up",
            "--data-dir",
            directory,
            "--port",
            "0",
            "--models-port",
            "0",
            *options,
            env={**os.environ, **(environ or {})},
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            state = await asyncio.wait_for(_state(Path(directory), process), _START_SECONDS)
            async with Connection(
                state["url"],
                name="bench",
                role="ability",
                networks=state["networks"],
                tools=tools,
            ) as client:
                pids = {part["name"]: part["pid"] for part in state["parts"]}
                yield Network(client, state["url"], pids, Path(directory))
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _state(directory: Path, process: asyncio.subprocess.Process) -> dict[str, Any]:
    """What stack.json says once the stack is complete."""
    while process.returncode is None:
        try:
            state: dict[str, Any] = json.loads((directory / "stack.json").read_text())
        except (FileNotFoundError, ValueError):
            state = {}
        if any(part["name"].startswith("worker") for part in state.get("parts", ())):
            return state
        await asyncio.sleep(0.1)
    raise RuntimeError("the stack did not start")
