"""How agents share the threads of a database; then with the engine and endless statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kadi_client import Connection, Identity, ToolError
from kadi_client.messages import decode, encode
from kadi_client.tools import Origin
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools
from kadi_localnet.database.turns import Turns

SECONDS = 20.0
ENDLESS = "SELECT x, (SELECT count(*) FROM T WHERE x <> $parent.$current.x) AS c FROM T ORDER BY c"
ANSWERED = [{"n": 5000}]


class Crowd:
    """Calls that hold a thread until they are told to end, in the order in which they got it."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.running: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    def call(self, agent: str, times: int = 1) -> None:
        for _ in range(times):
            end = asyncio.Event()
            self.tasks.append(asyncio.create_task(self._hold(agent, end)))

    async def _hold(self, agent: str, end: asyncio.Event) -> None:
        async with self.turns.turn(agent, timeout=SECONDS):
            self.running.append(agent)
            self._ends.append(end)
            await end.wait()

    async def settle(self) -> str:
        """Let everything happen that can; return who got a thread so far, in order."""
        for _ in range(10):
            await asyncio.sleep(0)
        return "".join(self.running)

    async def end(self, place: int) -> str:
        self._ends[place].set()
        return await self.settle()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def crowd() -> AsyncIterator[Callable[..., Crowd]]:
    crowds: list[Crowd] = []

    def gather(threads: int, **options: int) -> Crowd:
        crowds.append(Crowd(Turns(threads, **options)))
        return crowds[-1]

    yield gather
    for each in crowds:
        await each.close()
        assert each.turns.calls == 0


async def test_an_agent_holds_no_more_threads_than_it_leaves_free(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(12)
    for agent, running in [("a", 6), ("b", 9), ("c", 11), ("d", 12), ("e", 12)]:
        at.call(agent, 20)
        assert len(await at.settle()) == running
    assert "".join(at.running) == "aaaaaabbbccd"


async def test_those_who_wait_get_a_thread_in_turn(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1)
    at.call("a", 4)
    at.call("b", 2)
    at.call("c")
    assert await at.settle() == "a"
    for place in range(6):
        await at.end(place)
    assert "".join(at.running) == "aabcaba"


async def test_a_newcomer_goes_before_the_queue_of_an_agent_with_many_threads(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(4)
    at.call("a", 10)
    assert await at.settle() == "aa"
    at.call("b")
    assert await at.settle() == "aab"


async def test_a_free_thread_goes_to_the_agent_with_the_fewest(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(6)
    at.call("a", 9)
    assert await at.settle() == "aaa"
    at.call("b", 9)
    assert await at.settle() == "aaabb"
    at.call("c", 9)
    assert await at.settle() == "aaabbc"
    assert await at.end(0) == "aaabbc"
    assert await at.end(3) == "aaabbcb"
    assert await at.end(6) == "aaabbcbc"


async def test_too_long_a_queue_is_refused(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1, places=4)
    at.call("a", 3)
    await at.settle()
    with pytest.raises(DatabaseError, match="busy: 2 calls of this agent.*again in a moment"):
        async with at.turns.turn("a", timeout=SECONDS):
            raise AssertionError("got a thread")
    at.call("b")
    await at.settle()
    assert at.turns.calls == 4


async def test_a_wait_ends_in_time_and_leaves_its_place(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1, places=2)
    at.call("a")
    await at.settle()
    for _ in range(3):
        with pytest.raises(DatabaseError, match=r"no thread was free .* nothing was executed"):
            async with at.turns.turn("b", timeout=0.01):
                raise AssertionError("got a thread")
    assert at.turns.calls == 1


async def test_a_cancelled_wait_gives_its_place_back(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1)
    at.call("a")
    at.call("b")
    await at.settle()
    at.tasks[1].cancel()
    await at.settle()
    at.call("c")
    assert await at.end(0) == "ac"


async def test_a_thread_that_comes_together_with_the_cancelling_is_given_back(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(1)
    async with at.turns.turn("a", timeout=SECONDS):
        at.call("b")
        await at.settle()
    at.tasks[0].cancel()  # before it could run with the thread that it has now
    assert at.turns.calls == 1
    assert await at.settle() == ""
    assert at.turns.calls == 0


async def test_calls_without_an_agent_count_as_one(crowd: Callable[..., Crowd]) -> None:
    turns = Turns(4)
    async with turns.turn(None, timeout=1), turns.turn(None, timeout=1):
        with pytest.raises(DatabaseError, match="no thread was free"):
            async with turns.turn(None, timeout=0.01):
                raise AssertionError("got a thread")


# With the engine.


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
        encode(
            await tools["arcade-query"].handler(
                {"database": "d", "query": "SELECT count(*) AS n FROM T"}, Patient()
            )
        )
    )["result"]
    assert [counted] == ANSWERED


@pytest.mark.engine
async def test_endless_statements_of_one_agent_starve_no_other(engine: EmbeddedDatabases) -> None:
    turns = Turns(engine.concurrency, places=16)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(serve_broker("127.0.0.1", 0))
        await enter(Connection(broker.url, tools=database_tools(engine, turns=turns)))
        greedy = await enter(Connection(broker.url, identity=Identity.generate()))
        modest = await enter(Connection(broker.url, identity=Identity.generate()))
        endless = {"database": "d", "query": ENDLESS}
        hogging = [
            asyncio.create_task(greedy.invoke("arcade-query", endless, timeout=600))
            for _ in range(10)
        ]
        async with asyncio.timeout(SECONDS):
            while turns.calls < 10:  # noqa: ASYNC110 - nobody tells when a call waits
                await asyncio.sleep(0)
            asked = {"database": "d", "query": "SELECT count(*) AS n FROM T"}
            for _ in range(5):
                answer = await modest.invoke("arcade-query", asked, timeout=SECONDS)
                assert answer["result"] == ANSWERED
        with pytest.raises(ToolError, match="the database is busy: 8 calls of this agent"):
            await greedy.invoke("arcade-query", asked, timeout=SECONDS)
        assert not any(task.done() for task in hogging)
        for task in hogging:
            task.cancel()
        await asyncio.gather(*hogging, return_exceptions=True)
