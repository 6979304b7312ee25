"""What a call costs more if its provider is on another broker of the network, over NATS."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kadi_client import Connection, Tool
from kadi_localnet.broker.nats_server import find_nats_server, run_nats_server

_SIZES = {"100 B": 100, "100 kB": 100_000, "2 MB": 2_000_000}


async def measure(*, calls: int, rounds: int) -> dict[str, Any]:
    """Call a tool through its own broker and through another one in turn; medians in ms."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, port = await stack.enter_async_context(
            run_nats_server(find_nats_server() or "nats-server", directory, token="t")
        )
        backplane = f"nats://t@127.0.0.1:{port}"
        near, far = [
            await stack.enter_async_context(_broker(directory, backplane)) for _ in range(2)
        ]
        tool = Tool("echo", "", {"type": "object"}, _echo)
        await stack.enter_async_context(Connection(near, tools=[tool]))
        callers = {
            name: await stack.enter_async_context(Connection(url))
            for name, url in (("same broker", near), ("another broker", far))
        }
        report: dict[str, Any] = {}
        for name, size in _SIZES.items():
            took: dict[str, list[float]] = {caller: [] for caller in callers}
            text = "x" * size
            for _ in range(max(3, calls * rounds // (1 + size // 10_000))):
                for caller, connection in callers.items():
                    took[caller].append(await _seconds(connection, text))
            report[name] = _compared(took)
        return report


async def _echo(tool_input: dict[str, Any], _call: Any) -> dict[str, Any]:
    return tool_input


async def _seconds(connection: Connection, text: str) -> float:
    began = time.perf_counter()
    await connection.invoke("echo", {"text": text})
    return time.perf_counter() - began


def _compared(took: dict[str, list[float]]) -> dict[str, float]:
    medians = {f"{caller}, ms": statistics.median(each) * 1e3 for caller, each in took.items()}
    near, far = took.values()
    more = statistics.median(b - a for a, b in zip(near, far, strict=True)) * 1e3
    return {name: round(each, 3) for name, each in {**medians, "more, ms": more}.items()}


@asynccontextmanager
async def _broker(directory: Path, backplane: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ability_search", "broker", "--port", "0", "--supervised"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "SEARCH_DATA_DIR": str(directory),
            "SEARCH_LOCAL_BROKER_BACKPLANE": backplane,
        },
    )
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())["ready"]["url"]
    finally:
        process.kill()
        await process.wait()
