"""Calls of tools through the gateway and MCP, over a real broker."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from ability_search.extensions.cli.tool_calls import Caller, LiveConnection, Unavailable
from kadi_client import Connection, Tool
from kadi_localnet.broker import serve_broker

TOOLS = (
    *("search-query", "search-similar", "search-collections", "search-collection-info"),
    *("notes-overview", "notes-paths"),
)

WORKER = """
import asyncio, sys
from kadi_client import Connection, Tool

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
                with pytest.raises(Unavailable):
                    await call
