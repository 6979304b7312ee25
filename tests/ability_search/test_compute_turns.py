"""Long computations take turns in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from ability_search.compute_turns import ComputeTurns, computed
from kadi_client.context import call_id, caller, handling

PATIENCE = 10.0
LITTLE, MUCH = 1, 1_000_000


async def test_little_work_is_done_at_once_and_much_in_the_thread() -> None:
    turns = ComputeTurns()
    here = threading.get_ident()
    assert await turns.run(threading.get_ident, work=LITTLE) == here
    elsewhere = {await turns.run(threading.get_ident, work=MUCH) for _ in range(5)}
    assert len(elsewhere) == 1
    assert here not in elsewhere


async def test_a_computation_belongs_to_the_call_that_needs_it() -> None:
    turns = ComputeTurns()
    with handling({"callId": "call-1"}, caller="agent-1"):
        assert await turns.run(lambda: (call_id(), caller()), work=MUCH) == ("call-1", "agent-1")


@pytest.mark.parametrize("work", [LITTLE, MUCH])
async def test_an_error_reaches_the_call(work: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await ComputeTurns().run(lambda: 1 // 0, work=work)


async def test_a_caller_with_few_computations_does_not_wait_for_all_of_another() -> None:
    turns, began, may_end = ComputeTurns(), list[str](), threading.Event()

    def compute(name: str) -> Callable[[], None]:
        def run() -> None:
            began.append(name)
            may_end.wait(PATIENCE)

        return run

    async def call(agent: str, name: str) -> None:
        with handling({}, caller=agent):
            await turns.run(compute(name), work=MUCH)

    names = [("many", f"m{place}") for place in range(5)] + [("few", "f")]
    tasks = [asyncio.create_task(call(*each)) for each in names]
    await asyncio.sleep(0)
    cancelled = tasks[3]
    cancelled.cancel()
    may_end.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert began == ["m0", "f", "m1", "m2", "m4"]


async def test_each_agent_has_one_large_call_at_a_time_and_small_ones_beside_it() -> None:
    turns, running, most = ComputeTurns(), list[str](), 0
    may_end = asyncio.Event()

    async def call(agent: str, work: int) -> None:
        nonlocal most
        with handling({}, caller=agent):
            async with turns.call(work=work):
                running.append(agent)
                most = max(most, len(running))
                await may_end.wait()
                running.remove(agent)

    def calls(agent: str, work: int, count: int = 20) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(call(agent, work)) for _ in range(count)]

    started = calls("first", MUCH)
    await asyncio.sleep(0)
    assert running == ["first"]
    started += calls("second", MUCH) + calls("third", MUCH)
    await asyncio.sleep(0)
    assert running == ["first", "second"]
    started += calls("first", LITTLE)
    await asyncio.sleep(0)
    assert len(running) == 22
    may_end.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*started)
    assert most == 22


async def test_only_coroutines_that_do_not_wait_run_without_a_loop() -> None:
    async def add(first: int, second: int) -> int:
        return first + second

    assert computed(add(1, 2)) == 3
    with pytest.raises(RuntimeError, match="waits"):
        computed(asyncio.sleep(0))
