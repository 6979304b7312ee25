from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.understanding.intent_scores import order_gains, proximity
from ability_search.extensions.understanding.periods import Period

MARCH = Period(100, 130)


def test_day_within_the_period_counts_fully_and_others_by_distance() -> None:
    assert proximity([Period(110, 110)], MARCH) == 1
    for distance in (1, 15, 40):
        near = exp(-(distance**2) / (2 * 15**2)) / 2
        for day in (100 - distance, 130 + distance):
            assert proximity([Period(day, day)], MARCH) == pytest.approx(near)


def test_open_ends_include_all_days() -> None:
    assert proximity([Period(10**6, 10**6)], Period(100, None)) == 1
    assert proximity([Period(-(10**6), -(10**6))], Period(None, 100)) == 1
    assert proximity([Period(99, 99)], Period(100, None)) < 1


def test_a_longer_period_counts_by_the_share_of_its_days_within() -> None:
    assert proximity([Period(60, 180)], MARCH) == 31 / 121
    assert proximity([Period(121, 140)], MARCH) == 0.5
    assert proximity([Period(0, 364)], MARCH) < 0.2


def test_closest_of_several_periods_counts() -> None:
    assert proximity([Period(0, 0), Period(120, 120), Period(900, 900)], MARCH) == 1
    assert proximity([], MARCH) == 0
    assert proximity([Period(None, 3)], MARCH) == 0


spans = st.tuples(st.integers(-4000, 4000), st.integers(0, 800)).map(lambda p: Period(p[0], sum(p)))


@given(spans, spans)
def test_proximity_is_a_share(chunk: Period, asked: Period) -> None:
    assert 0 <= proximity([chunk], asked) <= 1


def test_gain_is_the_probability_that_no_newer_one_is_relevant() -> None:
    days, relevance = np.array([3.0, 9.0, 9.0, 5.0]), np.array([1.0, 0.5, 0.25, 1.0])
    newest = 1.0
    third = (1 - 0.5 / 2) * (1 - 0.25 / 2)
    oldest = third * (1 - 1 / 2)
    alone = np.array([oldest, newest, newest, third])
    mean = (oldest + 0.5 * newest + 0.25 * newest + third) / 2.75
    assert order_gains(days, relevance) == pytest.approx(relevance * (alone - mean))
    reverse = order_gains(-days, relevance)
    assert np.argmax(reverse) == 0
    assert reverse[1] == 2 * reverse[2] == min(reverse)


def test_newest_candidate_without_relevance_gains_nothing() -> None:
    gains = order_gains(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 0.0]))
    assert np.argmax(gains) == 1
    assert gains[2] == 0


def test_candidates_of_one_day_gain_nothing() -> None:
    assert order_gains(np.array([7.0]), np.array([1.0])).tolist() == [0]
    assert order_gains(np.full(3, 7.0), np.array([1.0, 0.3, 0.7])) == pytest.approx(np.zeros(3))


@given(st.lists(st.tuples(st.integers(-9, 9), st.floats(0, 1)), max_size=9))
def test_gains_sum_to_zero(found: list[tuple[int, float]]) -> None:
    days, relevance = np.array([(0.0, 1.0), *found], dtype=np.float64).T
    gains = order_gains(days, relevance)
    assert gains.sum() == pytest.approx(0)
    assert np.abs(gains).max() <= 1
    equal = order_gains(days, np.ones(len(days)))
    order = np.argsort(days, kind="stable")
    assert (np.diff(equal[order]) >= -1e-12).all()
