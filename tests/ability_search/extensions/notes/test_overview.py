"""Bins, periods and axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.documents import instant
from ability_search.extensions.notes.note_tools import CollectionGrowth, GrowthPeriod, Unit
from ability_search.extensions.notes.overview import (
    DAY,
    HOUR,
    MINUTE,
    bin_width,
    finest,
    grown,
    principal_axes,
)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 100))
def test_bins_are_as_narrow_as_their_number_allows(least: int, size: int, bins: int) -> None:
    width = bin_width(least, least + size, bins=bins)
    assert width * bins > size
    steps = [step * 10**power for power in range(8) for step in (1, 2, 5)]
    narrower = steps[: steps.index(width)]
    assert all(each * bins <= size for each in narrower)


def growth(unit: Unit, *periods: tuple[int, int, int]) -> CollectionGrowth:
    merged = [
        GrowthPeriod(start=instant(start), sources=sources, chunks=chunks)
        for start, sources, chunks in periods
    ]
    return CollectionGrowth(unit=unit, periods=merged)


def test_periods_are_merged_until_they_are_few() -> None:
    days = [(day * DAY, 1, 2) for day in range(400)]
    assert [
        (found.unit, len(found.periods), sum(each.chunks for each in found.periods))
        for most in (400, 100, 57, 20, 1)
        for found in [grown(days, period=DAY, most=most)]
    ] == [
        ("day", 400, 800),
        ("week", 58, 800),
        ("month", 14, 800),
        ("month", 14, 800),
        ("year", 2, 800),
    ]
    friday = 5 * 7 * DAY + DAY  # 1970-01-01 was a Thursday
    weeks = grown([(friday, 1, 1), (friday + 2 * DAY, 1, 1)], period=DAY, most=1)
    assert weeks == growth("week", (friday - 4 * DAY, 2, 2))
    hours = [(5 * HOUR, 1, 1), (2 * HOUR, 1, 1)]
    assert grown(hours, period=HOUR, most=9) == growth("hour", hours[1], hours[0])
    minutes = [(HOUR + 7 * MINUTE, 1, 1), (HOUR + 9 * MINUTE, 1, 2)]
    assert grown(minutes, period=MINUTE, most=9) == growth("minute", *minutes)
    assert grown(minutes, period=MINUTE, most=1) == growth("hour", (HOUR, 2, 3))
    assert grown([], period=DAY, most=9) == growth("day")
    ages = (2 * HOUR, 2 * HOUR + 1, 3 * DAY, 3 * DAY + 1)
    assert [finest(0, age) for age in ages] == [MINUTE, HOUR, HOUR, DAY]


def test_axes_are_those_along_which_vectors_differ_most() -> None:
    rng = np.random.default_rng(3)
    spread = np.array([5.0, 2.0, 0.1, 0.1])
    vectors = rng.standard_normal((300, 4)) * spread + 7
    found = principal_axes(vectors)
    values, true = np.linalg.eigh(np.cov(vectors.T))
    assert np.abs(np.sum(found.axes * true.T[::-1][:2], axis=1)) == pytest.approx([1, 1])
    assert found.explained == pytest.approx(values[::-1][:2] / values.sum())
    points = [found.place(row) for row in vectors @ found.axes.T]
    assert np.mean(points, axis=0) == pytest.approx([0, 0], abs=1e-9)
    assert principal_axes(vectors[::-1]).axes == pytest.approx(found.axes)


@pytest.mark.parametrize("vectors", [[[0.6, 0.8]], [[0.6, 0.8]] * 9, [[1.0]], [[1.0], [1.0]]])
def test_what_does_not_differ_is_one_point(vectors: list[list[float]]) -> None:
    found = principal_axes(vectors)
    assert not found.explained.any()
    assert found.place((np.asarray(vectors[0]) @ found.axes.T).tolist()) == pytest.approx((0, 0))
