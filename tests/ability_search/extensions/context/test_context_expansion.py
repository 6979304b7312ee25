"""Merging of adjacent hits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.context.context_expansion import merged


def test_adjacent_hits_are_merged_into_the_better_one() -> None:
    hits = [("a", 3), ("b", 4), ("a", 7), ("a", 4), ("a", 5)]
    assert merged(hits, most=9, reach=1, span=9) == [0, 1, 2, 0, 0]


def test_hit_between_two_is_merged_into_the_better_one() -> None:
    assert merged([("a", 3), ("a", 5), ("a", 4)], most=9, reach=1, span=9) == [0, 1, 0]


def test_distant_hits_and_long_runs_are_not_merged() -> None:
    assert merged([("a", 1), ("a", 4)], most=9, reach=2, span=9) == [0, 1]
    assert merged([("a", 1), ("a", 2), ("a", 3)], most=9, reach=1, span=2) == [0, 0, 2]


def test_hits_after_the_limit_are_not_examined() -> None:
    hits = [("a", 3), ("a", 4), ("a", 9), ("a", 5)]
    assert merged(hits, most=2, reach=1, span=9) == [0, 0, 2]
    assert merged(hits, most=1, reach=1, span=9) == [0]


def test_no_hits_are_merged_into_nothing() -> None:
    assert merged([], most=9, reach=1, span=1) == []


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), unique=True),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_groups_are_runs_and_do_not_depend_on_later_hits(
    hits: list[tuple[str, int]], reach: int, span: int
) -> None:
    into = merged(hits, most=99, reach=reach, span=span)
    for place, head in enumerate(into):
        assert head <= place
        assert into[head] == head
        assert merged(hits[: place + 1], most=99, reach=reach, span=span) == into[: place + 1]
    for head in set(into):
        group = sorted(hits[place] for place, own in enumerate(into) if own == head)
        numbers = [number for _, number in group]
        assert len({text for text, _ in group}) == 1
        assert numbers[-1] - numbers[0] < span
        assert all(b - a <= reach for a, b in zip(numbers, numbers[1:], strict=False))
