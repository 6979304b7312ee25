from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable

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
    work = Work(FairSlots(1, max_waiting=100, clock=lambda: 0.0))
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


async def test_turns_are_by_the_time_that_calls_hold_slots() -> None:
    now = 0.0
    took = {"long": 10.0, "short": 1.0}
    began: list[str] = []
    slots = FairSlots(1, max_waiting=100, share=1.0, clock=lambda: now)

    async def call(caller: str) -> None:
        nonlocal now
        async with slots.slot(caller):
            began.append(caller)
            await asyncio.sleep(0)
            now += took[caller]

    callers = ["long"] * 3 + ["short"] * 25
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(call, callers))
    first, second, third = (place for place, caller in enumerate(began) if caller == "long")
    assert first == 0
    # Ten short calls take as long as a long one.
    assert (second - first, third - second) == (11, 11)
    assert slots.calls == 0


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


class Crowd:
    """Calls that hold a slot until they end, in the order in which they got it."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.running: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    def call(self, caller: str, times: int = 1) -> None:
        for _ in range(times):
            end = asyncio.Event()
            self.tasks.append(asyncio.create_task(self._hold(caller, end)))

    async def _hold(self, caller: str, end: asyncio.Event) -> None:
        async with self.slots.slot(caller, timeout=PATIENCE):
            self.running.append(caller)
            self._ends.append(end)
            await end.wait()

    async def settle(self) -> str:
        """Let everything happen that can; return who got a slot so far, in order."""
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

    def gather(slots: int, places: int = 512) -> Crowd:
        crowds.append(
            Crowd(FairSlots(slots, max_waiting=places, share=0.5, reserve=True, clock=lambda: 0.0))
        )
        return crowds[-1]

    yield gather
    for each in crowds:
        await each.close()
        assert each.slots.calls == 0


async def test_an_caller_holds_no_more_slots_than_it_leaves_free(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(12)
    for caller, running in [("a", 6), ("b", 9), ("c", 11), ("d", 12), ("e", 12)]:
        at.call(caller, 20)
        assert len(await at.settle()) == running
    assert "".join(at.running) == "aaaaaabbbccd"


async def test_those_who_wait_get_a_slot_in_turn(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1)
    at.call("a", 4)
    at.call("b", 2)
    at.call("c")
    assert await at.settle() == "a"
    for place in range(6):
        await at.end(place)
    assert "".join(at.running) == "aabcaba"


async def test_a_newcomer_goes_before_the_queue_of_an_caller_with_many_slots(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(4)
    at.call("a", 10)
    assert await at.settle() == "aa"
    at.call("b")
    assert await at.settle() == "aab"


async def test_a_free_slot_goes_to_the_caller_with_the_fewest(
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
    with pytest.raises(Full, match="2 calls"):
        async with at.slots.slot("a", timeout=PATIENCE):
            raise AssertionError("got a slot")
    at.call("b")
    await at.settle()
    assert at.slots.calls == 4


async def test_a_wait_ends_in_time_and_leaves_its_place(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1, places=2)
    at.call("a")
    await at.settle()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with at.slots.slot("b", timeout=0.01):
                raise AssertionError("got a slot")
    assert at.slots.calls == 1


async def test_a_cancelled_wait_gives_its_place_back(crowd: Callable[..., Crowd]) -> None:
    at = crowd(1)
    at.call("a")
    at.call("b")
    await at.settle()
    at.tasks[1].cancel()
    await at.settle()
    at.call("c")
    assert await at.end(0) == "ac"


async def test_a_slot_that_comes_together_with_the_cancelling_is_given_back(
    crowd: Callable[..., Crowd],
) -> None:
    at = crowd(1)
    async with at.slots.slot("a", timeout=PATIENCE):
        at.call("b")
        await at.settle()
    at.tasks[0].cancel()  # before it could run with the slot that it has now
    assert at.slots.calls == 1
    assert await at.settle() == ""
    assert at.slots.calls == 0
