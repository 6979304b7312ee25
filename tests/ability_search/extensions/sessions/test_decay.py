"""Decay by age and boost by use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.sessions.decay import familiarity, recency


def test_factor_is_one_half_at_the_half_life() -> None:
    assert recency(0, half_life=90, floor=0) == 1
    assert recency(90, half_life=90, floor=0) == 0.5
    assert recency(270, half_life=90, floor=0) == 0.125


def test_factor_never_falls_below_the_floor() -> None:
    assert recency(270, half_life=90, floor=0.3) == 0.3
    assert recency(1e9, half_life=1e-3, floor=0.3) == 0.3
    assert recency(1e9, half_life=1e-3, floor=0) == 0


def test_future_counts_as_age_zero() -> None:
    assert recency(-1000, half_life=1, floor=0.3) == 1


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-3, 36_500), st.floats(0, 1))
def test_older_chunks_never_score_higher(
    one: float, other: float, half_life: float, floor: float
) -> None:
    newer, older = (recency(age, half_life=half_life, floor=floor) for age in sorted((one, other)))
    assert floor <= older <= newer <= 1


def test_use_raises_scores_up_to_a_limit() -> None:
    assert familiarity(0) == pytest.approx(1 / 1.3)
    assert familiarity(1) == pytest.approx(1.02 / 1.3)
    assert familiarity(14) < familiarity(15) == familiarity(10**9) == 1
