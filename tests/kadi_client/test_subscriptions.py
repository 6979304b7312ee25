from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_client.patterns import TopicPattern
from kadi_client.subscriptions import Event, Subscription


def slowly_matches(pattern: list[str], channel: list[str]) -> bool:
    """The definition, word by word."""
    if not pattern:
        return not channel
    if pattern[0] == "#":
        return slowly_matches(pattern[1:], channel) or (
            bool(channel) and slowly_matches(pattern, channel[1:])
        )
    return (
        bool(channel)
        and pattern[0] in ("*", channel[0])
        and slowly_matches(pattern[1:], channel[1:])
    )


@pytest.mark.parametrize(
    ("pattern", "channel", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "a.b", True),
        ("#.b", "b", True),
        ("#.b", "a.a.b", True),
        ("a.#.*.c", "a.c", False),
        ("a.#.*.c", "a.b.c", True),
        ("*", "a.b", False),
    ],
)
def test_patterns_are_amqp_topics(pattern: str, channel: str, expected: bool) -> None:
    assert TopicPattern(pattern.split(".")).matches(channel.split(".")) is expected


@given(
    st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=6),
    st.lists(st.sampled_from(["a", "b"]), max_size=6),
)
def test_matching_agrees_with_the_definition(pattern: list[str], channel: list[str]) -> None:
    assert TopicPattern(pattern).matches(channel) is slowly_matches(pattern, channel)


def test_a_pattern_made_to_explode_does_not() -> None:
    assert not TopicPattern(["#", "a"] * 100).matches(["a"] * 200 + ["b"])


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


def test_an_event_without_a_network_belongs_to_all() -> None:
    assert subscription("a", network="n").wants("a", None)
    assert subscription("a", network=None).wants("a", "m")
    assert not subscription("a", network="n").wants("a", "m")


def test_a_subscription_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="patterns"):
        subscription()
    with pytest.raises(ValueError, match="max_queued"):
        subscription("a", max_queued=0)
