from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ability_search.errors import SearchError
from ability_search.providers.model_calls import CircuitBreaker
from ability_search.providers.transports import Service


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Failed(SearchError):
    """The server failed."""

    retryable = True


class Refused(Failed):
    """The breaker is open."""


SERVICE = Service(
    tool="answer",
    agent_setting="SEARCH_ANSWER_AGENT",
    route="answers",
    answered="answer",
    who="the server",
    api="the API",
    verb="answer",
    unavailable=Failed,
    kinds={"held": Refused},
    hints={},
)


async def request(
    breaker: CircuitBreaker,
    answer: Callable[[], Awaitable[None]] | None = None,
    *,
    model: str | None = None,
    patience: float = 0,
) -> None:
    """Make a request; ``answer`` may wait or raise."""
    async with breaker.watching(model, SERVICE, patience=patience):
        if answer is not None:
            await answer()


async def fail() -> None:
    raise Failed("for now")


async def opened(breaker: CircuitBreaker, *, model: str | None = None, failures: int = 1) -> None:
    for _ in range(failures):
        with pytest.raises(Failed):
            await request(breaker, fail, model=model)


async def refusal(breaker: CircuitBreaker, *, model: str | None = None) -> float:
    """Return the seconds until the next request, from the error of one that is refused."""
    with pytest.raises(Refused) as raised:
        await request(breaker, model=model)
    assert raised.value.retry_after is not None
    return raised.value.retry_after


async def test_the_breaker_opens_lets_one_probe_through_and_closes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(limit=3, reset=30, clock=clock)
    await opened(breaker, failures=3)
    assert await refusal(breaker) == pytest.approx(30)
    clock.now += 29
    assert await refusal(breaker) == pytest.approx(1)
    clock.now += 2
    await opened(breaker)
    with pytest.raises(Refused, match=r"failed 4 times in a row; next request in 30\.0 s"):
        await request(breaker)
    clock.now += 31
    for _ in range(3):
        await request(breaker)


async def test_only_consecutive_failures_count() -> None:
    breaker = CircuitBreaker(limit=2, reset=30)
    for _ in range(5):
        await opened(breaker)
        await request(breaker)


class Probe:
    """A request whose answer is awaited until the test gives one."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.answered = asyncio.Event()

    async def __call__(self) -> None:
        self.sent.set()
        await self.answered.wait()


async def half_open(clock: Clock) -> tuple[CircuitBreaker, Probe, asyncio.Task[None]]:
    """Return a breaker that waits for the outcome of its probe."""
    breaker = CircuitBreaker(limit=1, reset=30, clock=clock)
    await opened(breaker)
    clock.now += 31
    probe = Probe()
    task = asyncio.create_task(request(breaker, probe))
    await probe.sent.wait()
    assert breaker.any_open
    return breaker, probe, task


async def test_requests_wait_for_the_outcome_of_the_probe() -> None:
    breaker, probe, task = await half_open(Clock())
    waiting = [asyncio.create_task(request(breaker, patience=5)) for _ in range(3)]
    await asyncio.wait(waiting, timeout=0)
    assert not any(each.done() for each in waiting)
    await refusal(breaker)
    probe.answered.set()
    async with asyncio.timeout(5):
        await asyncio.gather(task, *waiting)


async def test_a_failed_probe_refuses_requests_that_cannot_wait_for_the_next() -> None:
    breaker, probe, task = await half_open(Clock())
    task.cancel()
    await asyncio.wait([task])

    async def fail_later() -> None:
        await probe()
        raise Failed("still")

    probe.sent.clear()
    task = asyncio.create_task(request(breaker, fail_later))
    await probe.sent.wait()
    waiting = asyncio.create_task(request(breaker, patience=5))
    await asyncio.wait([waiting], timeout=0)
    probe.answered.set()
    async with asyncio.timeout(5):
        with pytest.raises(Refused, match=r"2 times in a row; next request in 30\.0 s; last: "):
            await waiting
        with pytest.raises(Failed):
            await task


async def test_requests_wait_for_an_open_breaker_within_their_deadline() -> None:
    breaker = CircuitBreaker(limit=1, reset=0.05)
    await opened(breaker)
    async with asyncio.timeout(5):
        await asyncio.gather(*(request(breaker, patience=5) for _ in range(3)))
    assert not breaker.any_open


async def test_a_cancelled_probe_lets_a_waiting_request_through() -> None:
    breaker, _, task = await half_open(Clock())
    waiting = asyncio.create_task(request(breaker, patience=5))
    await asyncio.wait([waiting], timeout=0)
    task.cancel()
    async with asyncio.timeout(5):
        await waiting
    await request(breaker)


async def test_a_model_that_fails_leaves_the_others_alone() -> None:
    clock = Clock()
    breaker = CircuitBreaker(limit=2, reset=30, clock=clock)
    await opened(breaker, model="broken", failures=2)
    assert await refusal(breaker, model="broken") == pytest.approx(30)
    await request(breaker, model="other")
    await request(breaker)
    assert breaker.any_open
    clock.now += 31
    assert not breaker.any_open
    await request(breaker, model="broken")
    await request(breaker, model="broken")


async def test_of_many_failing_models_the_oldest_is_forgotten() -> None:
    breaker = CircuitBreaker(limit=1, reset=30)
    await opened(breaker, model="broken")
    for n in range(1000):
        await request(breaker, model=f"model {n}")
    await refusal(breaker, model="broken")
    for n in range(64):
        await opened(breaker, model=f"failing {n}")
    await request(breaker, model="broken")
    await refusal(breaker, model="failing 0")
    await refusal(breaker, model="failing 63")
