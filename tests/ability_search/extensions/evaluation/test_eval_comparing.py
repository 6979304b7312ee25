from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.extensions.evaluation.sets import mode_run, run_of

from ability_search.errors import InvalidInput
from ability_search.extensions.evaluation.comparison import compare, paired

VALUES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


def test_means_and_difference_are_those_of_the_pairs() -> None:
    found = paired(np.array([0.0, 0.5, 1.0, 0.5]), np.array([1.0, 0.5, 0.5, 1.0]))
    assert (found.a, found.b, found.difference) == (0.5, 0.75, 0.25)
    assert (found.queries, found.gained, found.lost) == (4, 2, 1)
    assert found.low <= 0.25 <= found.high


def test_few_pairs_have_the_exact_probability() -> None:
    # All five gain the same: of the 32 ways to flip the signs two are as extreme.
    same = paired(np.zeros(5), np.full(5, 0.1))
    assert same.p == pytest.approx(2 / 32)
    assert (same.low, same.high) == pytest.approx((0.1, 0.1))
    # The differences sum to 5; with other signs 5 once more, 7, and the negatives of all three.
    mixed = paired(np.zeros(4), np.array([1.0, 2.0, 3.0, -1.0]))
    assert mixed.p == pytest.approx(6 / 16)


def test_pairs_that_are_alike_do_not_bear_on_the_probability() -> None:
    few = paired(np.zeros(5), np.full(5, 0.1))
    among_many = paired(np.zeros(500), np.array([0.1] * 5 + [0.0] * 495))
    assert among_many.p == few.p
    assert not among_many.significant


def test_a_plain_difference_is_significant_and_noise_is_not() -> None:
    rng = np.random.default_rng(1)
    a = rng.uniform(size=200)
    better = paired(a, np.clip(a + 0.05 + rng.normal(0, 0.1, 200), 0, 1))
    assert better.significant
    assert better.low > 0
    noise = paired(a, np.clip(a + rng.normal(0, 0.1, 200), 0, 1))
    assert not noise.significant
    assert noise.low < 0 < noise.high


def test_the_interval_is_about_as_wide_as_theory_says() -> None:
    differences = np.random.default_rng(2).normal(0.02, 0.2, 400)
    found = paired(np.zeros(400), differences)
    error = differences.std(ddof=1) / 20
    assert found.low == pytest.approx(differences.mean() - 1.96 * error, abs=0.2 * error)
    assert found.high == pytest.approx(differences.mean() + 1.96 * error, abs=0.2 * error)


def test_the_same_values_give_the_same_numbers_every_time() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(size=50), rng.uniform(size=50)
    assert paired(a, b) == paired(a, b)


@settings(max_examples=25)
@given(VALUES)
def test_whatever_the_values_the_numbers_are_sound(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    found = paired(a, b, resamples=200)
    assert 0 < found.p <= 1
    assert found.low <= found.high
    assert found.gained + found.lost <= found.queries
    if not (b - a).any():
        assert (found.low, found.high, found.p) == (0, 0, 1)
    turned = paired(b, a, resamples=200)
    assert turned.difference == -found.difference
    assert (turned.gained, turned.lost) == (found.lost, found.gained)


CATEGORIES = {"q1": "x", "q2": "x", "q3": "y", "q4": "y"}
BEFORE = {"q1": 0.25, "q2": 0.5, "q3": 1.0, "q4": 0.0}
AFTER = {"q1": 0.5, "q2": 0.5, "q3": 0.0, "q4": 0.75}


def test_runs_are_compared_by_metric_category_and_query() -> None:
    a = run_of({"hybrid": mode_run(BEFORE, CATEGORIES)}, name="before")
    b = run_of({"hybrid": mode_run(AFTER, CATEGORIES)}, name="after")
    found = compare(a, b, mode_a="hybrid", mode_b="hybrid")
    assert (found.a, found.b) == ("before", "after")
    assert list(found.metrics) == ["nDCG@10", "Hit@1"]
    assert found.metrics["nDCG@10"].difference == 0
    assert {name: each.queries for name, each in found.categories.items()} == {"x": 2, "y": 2}
    assert found.categories["x"].difference == 0.125
    assert [(change.query, change.b - change.a) for change in found.gained] == [
        ("q4", 0.75),
        ("q1", 0.25),
    ]
    assert [change.query for change in found.lost] == ["q3"]
    told = found.as_json(most=1)
    assert [change["query"] for change in told["gained"]] == ["q4"]
    assert (told["resamples"], told["seed"]) == (10_000, 0)


def test_modes_of_one_run_are_compared_too() -> None:
    run = run_of({"semantic": mode_run(BEFORE), "hybrid": mode_run(AFTER)}, name="r")
    found = compare(run, run, mode_a="semantic", mode_b="hybrid", metric="Hit@1")
    assert (found.a, found.b) == ("r semantic", "r hybrid")
    assert found.categories == {}
    assert [change.query for change in found.gained] == ["q4"]


def test_what_cannot_be_compared_is_refused() -> None:
    run = run_of({"hybrid": mode_run(BEFORE)})
    with pytest.raises(InvalidInput, match="different sets"):
        compare(run, run_of(run.modes, digest="1"), mode_a="hybrid", mode_b="hybrid")
    with pytest.raises(InvalidInput, match="has hybrid, not keyword"):
        compare(run, run, mode_a="hybrid", mode_b="keyword")
    with pytest.raises(InvalidInput, match="MAP is not in both runs"):
        compare(run, run, mode_a="hybrid", mode_b="hybrid", metric="MAP")
