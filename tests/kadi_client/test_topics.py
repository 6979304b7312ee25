import sys
from collections.abc import Callable
from functools import cache
from itertools import islice, product
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_client.topics import Topics

words = st.sampled_from(["a", "b", "", "*", "#"])
paths = st.lists(words, min_size=1, max_size=7).map(".".join)


def reference(pattern: str, channel: str) -> bool:
    """The definition, word by word."""
    left, right = tuple(pattern.split(".")), tuple(channel.split("."))

    @cache
    def matches(p: int, c: int) -> bool:
        if p == len(left):
            return c == len(right)
        if left[p] == "#":
            return any(matches(p + 1, later) for later in range(c, len(right) + 1))
        return c < len(right) and left[p] in ("*", right[c]) and matches(p + 1, c + 1)

    return matches(0, 0)


@pytest.mark.parametrize(
    ("pattern", "channel", "expected"),
    [
        ("search.indexed", "search.indexed", True),
        ("search.indexed", "search.indexed.more", False),
        ("search.*", "search.indexed", True),
        ("search.*", "search", False),
        ("search.*", "search.a.b", False),
        ("search.#", "search", True),
        ("search.#", "search.a.b", True),
        ("search.#", "searching", False),
        ("#", "anything.at.all", True),
        ("#.end", "end", True),
        ("#.end", "a.b.end", True),
        ("a.#.b.#.c", "a.c", False),
        ("a.#.b.#.c", "a.x.b.y.z.c", True),
        ("*.*", "a.", True),
        ("a.*.c", "a..c", True),
    ],
)
def test_a_pattern_matches_what_amqp_says(pattern: str, channel: str, expected: bool) -> None:
    topics: Topics[str] = Topics()
    topics.add(pattern, "me")
    assert topics.match(channel) == ({"me"} if expected else set())


@given(st.lists(st.tuples(paths, st.integers(0, 3)), max_size=12), st.lists(paths, max_size=6))
def test_matching_agrees_with_the_definition(
    subscriptions: list[tuple[str, int]], channels: list[str]
) -> None:
    topics: Topics[int] = Topics()
    for pattern, subscriber in subscriptions:
        topics.add(pattern, subscriber)
    for channel in [*channels, *(pattern for pattern, _ in subscriptions)]:
        expected = {who for pattern, who in subscriptions if reference(pattern, channel)}
        assert topics.match(channel) == expected


@given(st.lists(st.tuples(st.booleans(), paths, st.integers(0, 2)), max_size=30), paths)
def test_removing_undoes_adding_and_leaves_nothing_behind(
    steps: list[tuple[bool, str, int]], channel: str
) -> None:
    topics: Topics[int] = Topics()
    model: set[tuple[str, int]] = set()
    for add, pattern, subscriber in steps:
        if add:
            topics.add(pattern, subscriber)
            model.add((pattern, subscriber))
        else:
            topics.remove(pattern, subscriber)
            model.discard((pattern, subscriber))
    assert topics.match(channel) == {who for pattern, who in model if reference(pattern, channel)}
    for pattern, subscriber in model:
        topics.remove(pattern, subscriber)
    assert not topics


def steps(work: Callable[[], object]) -> int:
    """The number of calls of functions that the work makes."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@given(
    st.lists(paths, min_size=1, max_size=40), st.lists(words, min_size=1, max_size=12).map(".".join)
)
def test_a_word_of_a_channel_visits_each_word_of_the_patterns_once_at_most(
    patterns: list[str], channel: str
) -> None:
    topics: Topics[int] = Topics()
    for subscriber, pattern in enumerate(patterns):
        topics.add(pattern, subscriber)
    nodes = 1 + len(
        {tuple(p.split(".")[: n + 1]) for p in patterns for n in range(p.count(".") + 1)}
    )
    assert steps(lambda: topics.match(channel)) <= 12 * nodes * (channel.count(".") + 2)


def test_patterns_made_to_explode_cost_what_they_hold() -> None:
    topics: Topics[int] = Topics()
    # They differ in their first words, so that they share nothing.
    patterns = ["#." + ".#.".join(each[::-1]) for each in islice(product("a*", repeat=30), 100)]
    for subscriber, pattern in enumerate(patterns):
        topics.add(pattern, subscriber)
    channel = ".".join("a" * 64)
    assert len(topics.match(channel)) == len(patterns)
    assert steps(lambda: topics.match(channel)) < 12 * 60 * len(patterns) * 64


def test_more_subscribers_of_the_same_patterns_cost_nothing_more_to_find() -> None:
    few: Topics[int] = Topics()
    many: Topics[int] = Topics()
    patterns = [".".join(each) for each in product("a*#", repeat=4)]
    for pattern in patterns:
        few.add(pattern, 0)
        for subscriber in range(30):
            many.add(pattern, subscriber)
    assert steps(lambda: many.match("a.a.a.a")) == steps(lambda: few.match("a.a.a.a"))
