"""Agents share the threads of a database, over the broker and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kadi_client import Connection, Identity, ToolError
from kadi_client.messages import decode, encode
from kadi_client.tools import Call, Origin, Tool
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.backend import Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools, shared_threads

SECONDS = 20.0
ENDLESS = "SELECT x, (SELECT count(*) FROM T WHERE x <> $parent.$current.x) AS c FROM T ORDER BY c"
COUNTED = "SELECT count(*) AS n FROM T"
ANSWERED = [{"n": 5000}]


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[EmbeddedDatabases]:
    async with EmbeddedDatabases(tmp_path, heap_mb=512, workers=4) as databases:
        await databases.create("d", timeout=SECONDS)
        await databases.write("d", [Statement("CREATE DOCUMENT TYPE T")], timeout=SECONDS)
        rows = {"rows": [{"x": number} for number in range(5000)]}
        insert = Statement("INSERT INTO T CONTENT :rows RETURN COUNT", params=rows)
        await databases.write("d", [insert], timeout=SECONDS)
        yield databases


class Patient:
    """A caller that waits for an hour."""

    request_id = "r-1"
    remaining = 3600.0
    abandoned = False
    origin = Origin()

    async def publish(self, channel: str, data: Any) -> None:
        raise AssertionError("a database publishes nothing")


@pytest.mark.engine
async def test_no_caller_gets_more_than_the_longest_time(engine: EmbeddedDatabases) -> None:
    tools = {tool.name: tool for tool in database_tools(engine, longest=0.3)}
    for tool, key in [("arcade-query", "query"), ("arcade-command", "command")]:
        async with asyncio.timeout(SECONDS):
            answer = await tools[tool].handler({"database": "d", key: ENDLESS}, Patient())
        assert answer["success"] is False
        assert "no answer within 0.3 s: the statement was stopped" in answer["error"]
    [counted] = decode(
        encode(await tools["arcade-query"].handler({"database": "d", "query": COUNTED}, Patient()))
    )["result"]
    assert [counted] == ANSWERED


@pytest.mark.engine
async def test_a_call_that_gets_no_thread_in_time_says_that_nothing_was_executed(
    engine: EmbeddedDatabases,
) -> None:
    threads = shared_threads(engine)
    tools = {tool.name: tool for tool in database_tools(engine, longest=0.05, threads=threads)}
    async with threads.slot(""), threads.slot(""):
        answer = await tools["arcade-query"].handler(
            {"database": "d", "query": "SELECT 1"}, Patient()
        )
    assert "no thread was free for this agent within 0.05 s" in answer["error"]
    assert "nothing was executed" in answer["error"]


@pytest.mark.engine
async def test_endless_statements_of_one_agent_starve_no_other(engine: EmbeddedDatabases) -> None:
    threads = shared_threads(engine, max_waiting=16)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(serve_broker("127.0.0.1", 0))
        await enter(Connection(broker.url, tools=database_tools(engine, threads=threads)))
        greedy = await enter(Connection(broker.url, identity=Identity.generate()))
        modest = await enter(Connection(broker.url, identity=Identity.generate()))
        endless = {"database": "d", "query": ENDLESS}
        hogging = [
            asyncio.create_task(greedy.invoke("arcade-query", endless, timeout=600))
            for _ in range(10)
        ]
        async with asyncio.timeout(SECONDS):
            while threads.calls < 10:  # noqa: ASYNC110 - nobody tells when a call waits
                await asyncio.sleep(0)
            asked = {"database": "d", "query": COUNTED}
            for _ in range(5):
                answer = await modest.invoke("arcade-query", asked, timeout=SECONDS)
                assert answer["result"] == ANSWERED
        with pytest.raises(ToolError, match="the database is busy: 8 calls of this agent"):
            await greedy.invoke("arcade-query", asked, timeout=SECONDS)
        assert not any(task.done() for task in hogging)
        for task in hogging:
            task.cancel()
        await asyncio.gather(*hogging, return_exceptions=True)


@pytest.mark.engine
async def test_statements_that_a_worker_runs_for_one_agent_starve_no_other(
    engine: EmbeddedDatabases,
) -> None:
    threads = shared_threads(engine, max_waiting=16)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(serve_broker("127.0.0.1", 0))
        await enter(Connection(broker.url, tools=database_tools(engine, threads=threads)))
        worker = Connection(broker.url)

        async def query(asked: dict[str, Any], _call: Call) -> Any:
            return await worker.invoke("arcade-query", {"database": "d", **asked}, timeout=600)

        await enter(worker)
        await worker.serve([Tool("search", "", {"type": "object"}, query)])
        greedy = await enter(Connection(broker.url, identity=Identity.generate()))
        modest = await enter(Connection(broker.url, identity=Identity.generate()))
        hogging = [
            asyncio.create_task(greedy.invoke("search", {"query": ENDLESS}, timeout=600))
            for _ in range(7)
        ]
        async with asyncio.timeout(SECONDS):
            while threads.calls < 7:  # noqa: ASYNC110 - nobody tells when a call waits
                await asyncio.sleep(0)
            for _ in range(5):
                answer = await modest.invoke("search", {"query": COUNTED}, timeout=SECONDS)
                assert answer["result"] == ANSWERED
            assert threads.calls == 7
            for task in hogging:
                task.cancel()
            await asyncio.gather(*hogging, return_exceptions=True)
            # Their statements end with them, waiting or running.
            while threads.calls:  # noqa: ASYNC110 - nobody tells when a call ends
                await asyncio.sleep(0)
