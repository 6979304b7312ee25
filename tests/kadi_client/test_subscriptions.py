from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kadi_client.subscriptions import Event, Subscription


async def _nothing(_subscription: Subscription) -> None:
    return None


def subscription(*patterns: str, **options: Any) -> Subscription:
    settings: dict[str, Any] = {"network": None, "max_queued": 2, **options}
    return Subscription(patterns, activate=_nothing, deactivate=_nothing, **settings)


async def test_the_oldest_events_give_way_and_are_counted() -> None:
    async with subscription("a") as events:
        for number in range(5):
            events.put(Event("a", number))
        events.end()
        assert [event.data async for event in events] == [3, 4]
        assert events.dropped == 3


async def test_an_iteration_that_waits_is_woken_by_the_end() -> None:
    async with subscription("a") as events, asyncio.timeout(10):
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        events.end()
        with pytest.raises(StopAsyncIteration):
            await waiting


@pytest.mark.parametrize(
    ("own", "network", "received"), [("n", None, True), (None, "m", True), ("n", "m", False)]
)
async def test_an_event_without_a_network_belongs_to_all(
    own: str | None, network: str | None, received: bool
) -> None:
    async with subscription("a", network=own) as events:
        events.put(Event("a", 1, network))
        events.end()
        assert [event.data async for event in events] == ([1] if received else [])


def test_a_subscription_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="patterns"):
        subscription()
    with pytest.raises(ValueError, match="max_queued"):
        subscription("a", max_queued=0)
