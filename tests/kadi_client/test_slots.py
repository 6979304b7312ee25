from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from kadi_client.slots import FairSlots, Full

PATIENCE = 10.0


class Work:
    """Calls that hold a slot until they may go on; tells the order in which they began."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.began: list[str] = []
        self.go_on = asyncio.Semaphore(0)
        self.tasks: list[asyncio.Task[None]] = []

    async def _run(self, caller: Hashable, name: str) -> None:
        async with self.slots.slot(caller):
            self.began.append(name)
            await self.go_on.acquire()

    async def start(self, caller: Hashable, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(caller, name))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task

    async def finish(self, count: int) -> None:
        for _ in range(count):
            self.go_on.release()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_callers_take_turns_and_the_calls_of_one_keep_their_order() -> None:
    work = Work(FairSlots(1, max_waiting=100))
    for caller, name in (
        ("a", "a1"),
        ("a", "a2"),
        ("a", "a3"),
        ("b", "b1"),
        ("c", "c1"),
        ("b", "b2"),
    ):
        await work.start(caller, name)
    assert (work.began, work.slots.waiting) == (["a1"], 5)
    await work.finish(6)
    assert work.began == ["a1", "a2", "b1", "c1", "a3", "b2"]
    assert work.slots.waiting == 0


async def test_too_many_waiting_calls_are_refused_in_all_and_of_one_caller() -> None:
    work = Work(FairSlots(1, max_waiting=8))
    for number in range(3):
        await work.start("a", f"a{number}")
    with pytest.raises(Full):
        await (await work.start("a", "a3"))
    for number in range(6):
        await work.start(number, f"n{number}")
    with pytest.raises(Full):
        await (await work.start("late", "late"))
    await work.finish(9)
    assert len(work.began) == 9


async def test_without_room_to_wait_only_the_slots_are_used() -> None:
    work = Work(FairSlots(1, max_waiting=0))
    await work.start("a", "a1")
    with pytest.raises(Full):
        await (await work.start("a", "a2"))
    await work.finish(1)
    await work.start("a", "a3")
    await work.finish(1)
    assert work.began == ["a1", "a3"]


@pytest.mark.parametrize("given", [False, True])
async def test_a_cancelled_call_leaves_its_place_to_others(given: bool) -> None:
    work = Work(FairSlots(1, max_waiting=8))
    first = await work.start("a", "a1")
    leaving = await work.start("b", "b1")
    await work.start("c", "c1")
    if given:
        # The slot is given to the call in the very moment in which it is cancelled.
        first.add_done_callback(lambda _: leaving.cancel())
        work.go_on.release()
        await asyncio.wait([first])
    leaving.cancel()
    await work.finish(3)
    assert leaving.cancelled() or "b1" in work.began
    assert work.began[-1] == "c1"
    assert work.slots.waiting == 0
    await work.start("d", "d1")
    await work.finish(1)
    assert work.began[-1] == "d1"
