import time
from functools import cache
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_localnet.broker.topics import Topics

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


def test_many_wildcards_in_a_row_do_not_explode() -> None:
    topics: Topics[str] = Topics()
    topics.add(".".join(["#", "a"] * 60), "patient")
    assert topics.match(".".join(["a"] * 120)) == {"patient"}
    assert topics.match(".".join(["a"] * 119 + ["b"])) == set()


def test_a_thousand_patterns_made_to_explode_take_a_fraction_of_a_second() -> None:
    """What one session may subscribe to, and one channel, both as long as a name may be."""
    topics: Topics[int] = Topics()
    # They differ in their first words, so that they share nothing.
    for subscriber, words in enumerate(islice(product("a*", repeat=63), 1000)):
        topics.add("#." + ".#.".join(words[::-1]), subscriber)
    began = time.thread_time()

    found = topics.match(".".join("a" * 128))

    assert time.thread_time() - began < 1.0
    assert len(found) == 1000
