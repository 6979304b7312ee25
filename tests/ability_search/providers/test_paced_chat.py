"""PacedChat over models that take as long as a test says."""

from __future__ import annotations

import asyncio

import pytest
from tests.virtual_time import later, without_waiting

from ability_search.errors import ChatUnavailable
from ability_search.providers.chat import PacedChat

TIMEOUT = 0.2


class Model:
    """Answers after ``seconds`` and counts the requests that are with it at the same time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0
        self.together: list[int] = []

    async def complete(
        self, system: str, user: str, *, model: str | None, timeout: float, enough: int
    ) -> str:
        self.now += 1
        self.together.append(self.now)
        try:
            async with asyncio.timeout(timeout):
                await later(self.seconds)
        except TimeoutError as exc:
            raise ChatUnavailable("late") from exc
        finally:
            self.now -= 1
        return f"{system} {user} {model} {enough}"


async def ask(paced: PacedChat, timeout: float = TIMEOUT) -> str:
    return await paced.complete("s", "u", model="m", timeout=timeout, enough=9)


@without_waiting
async def test_a_quick_model_is_sent_up_to_four_requests_at_once() -> None:
    model = Model(0.001)
    paced = PacedChat(model)
    assert await asyncio.gather(*(ask(paced, 60) for _ in range(20))) == ["s u m 9"] * 20
    assert (model.together[0], max(model.together)) == (1, 4)


@without_waiting
async def test_a_slow_model_is_sent_one_request_at_a_time_and_none_fails_by_waiting() -> None:
    model = Model(TIMEOUT * 0.4)
    paced = PacedChat(model)
    assert len(await asyncio.gather(*(ask(paced) for _ in range(6)))) == 6
    assert max(model.together) == 1


@without_waiting
async def test_a_model_that_becomes_slow_is_sent_fewer_requests() -> None:
    model = Model(0.001)
    paced = PacedChat(model)
    await asyncio.gather(*(ask(paced, 60) for _ in range(8)))
    model.seconds = 2 * TIMEOUT
    model.together.clear()
    failed = await asyncio.gather(*(ask(paced) for _ in range(8)), return_exceptions=True)
    assert all(isinstance(each, ChatUnavailable) for each in failed)
    assert (max(model.together), model.together[-1]) == (4, 1)


@without_waiting
async def test_a_cancelled_request_lets_the_next_one_through() -> None:
    model = Model(60)
    paced = PacedChat(model)
    first = asyncio.ensure_future(ask(paced, 60))
    second = asyncio.ensure_future(ask(paced, 60))
    await asyncio.sleep(0)
    assert model.now == 1
    model.seconds = 0
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == "s u m 9"
