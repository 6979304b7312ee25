from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.ranking.temporal import proximity
from ability_search.understanding.periods import Period

MARCH = Period(100, 130)


def test_a_day_within_the_period_counts_fully_and_less_with_distance() -> None:
    assert proximity([Period(110, 110)], MARCH) == 1
    for distance in (1, 15, 40):
        near = exp(-(distance**2) / (2 * 15**2))
        for day in (100 - distance, 130 + distance):
            assert proximity([Period(day, day)], MARCH) == pytest.approx(near, rel=2e-3)


def test_open_ends_reach_as_far_as_there_are_days() -> None:
    assert proximity([Period(10**6, 10**6)], Period(100, None)) == 1
    assert proximity([Period(-(10**6), -(10**6))], Period(None, 100)) == 1
    assert proximity([Period(99, 99)], Period(100, None)) < 1


def test_a_longer_period_counts_as_the_mean_of_its_days() -> None:
    by_day = [proximity([Period(day, day)], MARCH) for day in range(60, 181)]
    assert proximity([Period(60, 180)], MARCH) == pytest.approx(sum(by_day) / 121, rel=1e-3)
    assert proximity([Period(0, 364)], MARCH) < 0.2


def test_the_closest_of_several_counts() -> None:
    assert proximity([Period(0, 0), Period(120, 120), Period(900, 900)], MARCH) == 1
    assert proximity([], MARCH) == 0
    assert proximity([Period(None, 3)], MARCH) == 0


spans = st.tuples(st.integers(-4000, 4000), st.integers(0, 800)).map(lambda p: Period(p[0], sum(p)))


@given(spans, spans)
def test_proximity_is_a_share(chunk: Period, asked: Period) -> None:
    assert 0 <= proximity([chunk], asked) <= 1
