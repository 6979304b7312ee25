"""Processes of one network that are killed under load: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.networks import TOKEN

from kadi_client import Connection, KadiError, Tool
from kadi_localnet.broker.nats_server import find_nats_server, run_nats_server

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

START_SECONDS = 60.0
PROGRESS_SECONDS = 30.0


@asynccontextmanager
async def broker_process(directory: Path, backplane: str) -> AsyncIterator[tuple[Any, str]]:
    """A broker in a process of its own, and its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ability_search", "broker", "--port", "0", "--supervised"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={
            **os.environ,
            "SEARCH_DATA_DIR": str(directory),
            "SEARCH_LOCAL_BROKER_BACKPLANE": backplane,
        },
        cwd=directory,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            ready = json.loads(await process.stdout.readline())["ready"]
        yield process, ready["url"]
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Load:
    """Callers that store numbers with a provider until they are stopped."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.acknowledged: list[str] = []
        self.errors: list[str] = []

    async def store(self, tool_input: dict[str, Any], _call: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.stored.add(tool_input["number"])
        return {"ok": True}

    async def call(self, name: str, connection: Connection) -> None:
        number = 0
        while True:
            number += 1
            one = f"{name}-{number}"
            try:
                await connection.invoke("store", {"number": one}, timeout=PROGRESS_SECONDS)
                self.acknowledged.append(one)
            except KadiError as exc:
                self.errors.append(str(exc))
                await asyncio.sleep(0.02)

    async def progress(self, names: set[str]) -> None:
        """Return once every caller has had another ten acknowledgements."""
        begun = len(self.acknowledged)
        async with asyncio.timeout(PROGRESS_SECONDS):
            while True:
                counts = dict.fromkeys(names, 0)
                for one in self.acknowledged[begun:]:
                    counts[one.rpartition("-")[0]] += 1
                if min(counts.values()) >= 10:
                    return
                await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def test_a_killed_broker_and_a_killed_server_lose_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    executable = find_nats_server()
    assert executable
    load, port = Load(), free_port()
    tool = Tool("store", "", {"type": "object"}, load.store)
    async with AsyncExitStack() as stack:
        server = run_nats_server(executable, tmp_path, token=TOKEN, port=port)
        nats, _ = await server.__aenter__()
        backplane = f"nats://{TOKEN}@127.0.0.1:{port}"
        started = await asyncio.gather(
            *(stack.enter_async_context(broker_process(tmp_path, backplane)) for _ in range(3))
        )
        urls = [url for _, url in started]
        turned = [",".join(urls[first:] + urls[:first]) for first in range(3)]
        for url in turned[:2]:
            await stack.enter_async_context(Connection(url, tools=[tool], grace=0))
        names = {f"caller{number}" for number in range(3)}
        callers = [
            asyncio.create_task(
                load.call(name, await stack.enter_async_context(Connection(url, grace=0)))
            )
            for name, url in zip(sorted(names), turned, strict=True)
        ]
        stack.callback(lambda: [task.cancel() for task in callers])
        await load.progress(names)

        started[0][0].kill()
        await load.progress(names)

        nats.kill()
        await server.__aexit__(None, None, None)
        await stack.enter_async_context(
            run_nats_server(executable, tmp_path, token=TOKEN, port=port)
        )
        await load.progress(names)
        for task in callers:
            task.cancel()
        await asyncio.wait(callers)
    assert set(load.acknowledged) <= load.stored
    explained = ("disconnected", "no provider", "connection to the broker", "cannot reach")
    assert [each for each in load.errors if not any(why in each for why in explained)] == []
