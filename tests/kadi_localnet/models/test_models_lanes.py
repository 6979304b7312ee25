from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from kadi_localnet.models.lanes import Lanes, LanesClosed

LIMIT = 10


@asynccontextmanager
async def opened(threads: int) -> AsyncIterator[Lanes]:
    lanes = Lanes(bulk_threads=threads)
    lanes.start()
    try:
        yield lanes
    finally:
        async with asyncio.timeout(LIMIT):
            await lanes.close()


class Gate:
    """A unit that reports that it runs and then waits to be let go."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> str:
        self.running.set()
        if not self.open.wait(LIMIT):
            raise TimeoutError
        return "gate"

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.running.wait, LIMIT)


def noting(log: list[str], name: str) -> Callable[[], str]:
    def unit() -> str:
        log.append(name)
        return name

    return unit


async def test_results_come_in_the_order_of_the_units() -> None:
    async with opened(3) as lanes, asyncio.timeout(LIMIT):
        units = [partial(pow, n, 2) for n in range(50)]
        assert await lanes.run(units) == [n * n for n in range(50)]
        assert await lanes.run([]) == []


async def test_a_query_does_not_wait_for_a_running_bulk_unit() -> None:
    gate = Gate()
    async with opened(1) as lanes, asyncio.timeout(LIMIT):
        bulk = asyncio.create_task(lanes.run([gate]))
        await gate.reached()
        assert await lanes.run([lambda: "query"], urgent=True) == ["query"]
        assert not bulk.done()
        gate.open.set()
        assert await bulk == ["gate"]


async def test_a_bulk_thread_takes_waiting_queries_first() -> None:
    log: list[str] = []
    gate, other = Gate(), Gate()
    async with opened(1) as lanes, asyncio.timeout(LIMIT):
        units: list[Callable[[], str]] = [gate, noting(log, "bulk")]
        bulk = asyncio.create_task(lanes.run(units))
        await gate.reached()
        blocked = asyncio.create_task(lanes.run([other], urgent=True))
        await other.reached()
        query = asyncio.create_task(lanes.run([noting(log, "query")], urgent=True))
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(bulk, query)
        assert log == ["query", "bulk"]
        other.open.set()
        await blocked


async def test_two_requests_take_turns() -> None:
    log: list[str] = []
    gate = Gate()
    async with opened(1) as lanes, asyncio.timeout(LIMIT):
        units: list[Callable[[], str]] = [gate, *(noting(log, "a") for _ in range(3))]
        first = asyncio.create_task(lanes.run(units))
        await gate.reached()
        second = asyncio.create_task(lanes.run([noting(log, "b") for _ in range(3)]))
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(first, second)
    assert log == ["a", "b", "a", "b", "a", "b"]


async def test_a_failing_unit_ends_its_request_and_no_other() -> None:
    log: list[str] = []
    gate = Gate()

    def fail() -> str:
        gate()
        raise ValueError("unit")

    async with opened(1) as lanes, asyncio.timeout(LIMIT):
        failing = asyncio.create_task(lanes.run([fail, noting(log, "dropped")]))
        await gate.reached()
        other = asyncio.create_task(lanes.run([noting(log, "other")]))
        await asyncio.sleep(0)
        gate.open.set()
        with pytest.raises(ValueError, match="unit"):
            await failing
        assert await other == ["other"]
        await lanes.run([noting(log, "last")])
    # The dropped unit may have begun before the failure was known, but nothing else is lost.
    assert [name for name in log if name != "dropped"] == ["other", "last"]


async def test_what_nobody_waits_for_is_dropped() -> None:
    log: list[str] = []
    gate = Gate()
    async with opened(1) as lanes, asyncio.timeout(LIMIT):
        units: list[Callable[[], str]] = [gate, noting(log, "abandoned")]
        task = asyncio.create_task(lanes.run(units))
        await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await lanes.run([noting(log, "next")])
    assert log == ["next"]


async def test_closing_wakes_everybody_and_refuses_new_work() -> None:
    gate, other = Gate(), Gate()
    lanes = Lanes(bulk_threads=1)
    lanes.start()
    async with asyncio.timeout(LIMIT):
        running = asyncio.create_task(lanes.run([gate]))
        await gate.reached()
        waiting = asyncio.create_task(lanes.run([other]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(lanes.close())
        for task in (running, waiting):
            with pytest.raises(LanesClosed):
                await task
        gate.open.set()
        await closing
        with pytest.raises(LanesClosed):
            await lanes.run([gate])
    assert not other.running.is_set()
