"""Calls of tools through the gateway and MCP, over a real broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ability_search.extensions.cli.tool_calls import Caller, LiveConnection, Unavailable
from kadi_client import Connection, RemoteError, Tool
from kadi_client.tools import Handler
from kadi_localnet.broker import serve_broker

TOOLS = (
    *("search-query", "search-similar", "search-collections", "search-collection-info"),
    *("notes-overview", "notes-paths"),
)

WORKER = """
import asyncio, sys
from kadi_client import Connection, RemoteError, Tool

async def hang(_input, _call):
    print("began", flush=True)
    await asyncio.Event().wait()

async def serve():
    async with Connection(sys.argv[1], tools=[Tool(sys.argv[2], "", {"type": "object"}, hang)]):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(serve())
"""


@pytest.mark.parametrize(
    ("tool", "repeated"),
    [*((tool, True) for tool in TOOLS), ("search-reindex", False), ("notes-analyze", False)],
)
async def test_a_read_whose_worker_is_lost_is_repeated(tool: str, repeated: bool) -> None:
    async def answer(_input: dict[str, Any], _call: Any) -> Any:
        return {"success": True, "by": "second"}

    live = LiveConnection(patience=5)
    caller = Caller(live, timeout=10)
    async with (
        asyncio.timeout(20),
        serve_broker(port=0) as broker,
        Connection(broker.url, provider_patience=dict.fromkeys(TOOLS, 5.0)) as connection,
    ):
        live.use(connection)
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORKER, broker.url, tool), stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdout is not None
        assert await worker.stdout.readline() == b"ready\n"
        call = asyncio.create_task(caller.read(tool, {}))
        assert await worker.stdout.readline() == b"began\n"
        second = Tool(tool, "", {"type": "object"}, answer)
        async with Connection(broker.url, tools=[second], grace=0):
            worker.kill()
            await worker.wait()
            if repeated:
                assert await call == {"success": True, "by": "second"}
            else:
                with pytest.raises(Unavailable, match="the worker disconnected before it answ"):
                    await call


@asynccontextmanager
async def calling(handler: Handler) -> AsyncIterator[Caller]:
    """Yield a caller of a search-delete that is handled so."""
    tool = Tool("search-delete", "", {"type": "object"}, handler)
    live = LiveConnection(patience=5)
    async with (
        serve_broker(port=0) as broker,
        Connection(broker.url, tools=[tool]) as connection,
    ):
        live.use(connection)
        yield Caller(live, timeout=10)


async def test_a_failure_says_what_the_other_side_said() -> None:
    async def refuse(_input: dict[str, Any], _call: Any) -> Any:
        raise RemoteError("the disk of 'this worker' is full, source: a long name")

    async with calling(refuse) as caller:
        with pytest.raises(Unavailable) as raised:
            await caller.call("search-delete", {"source": "a long name"})
    said = str(raised.value)
    assert said.startswith("search-delete did not answer: the worker failed: ")
    assert "the disk of 'this worker' is full" in said
    assert "a long name" not in said
    assert raised.value.retryable


async def test_an_answer_of_another_shape_names_the_tool() -> None:
    async def answer(_input: dict[str, Any], _call: Any) -> Any:
        return ["text"]

    async with calling(answer) as caller:
        with pytest.raises(Unavailable, match="search-delete returned an answer that is not"):
            await caller.call("search-delete", {})
