"""Fusion: scores in [0, 1], comparable, and right when an arm is missing or silent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.errors import InvalidInput
from ability_search.ranking.fusion import (
    Arm,
    convex,
    normalized_cosine,
    reciprocal_rank,
    unseen_score,
)


def arm(name: str, weight: float = 1.0, unseen: float = 0.0, **scores: float) -> Arm:
    return Arm(name, tuple(scores), np.array(list(scores.values())), weight, unseen)


def test_convex_is_the_weighted_mean_of_the_arms() -> None:
    hits = convex([arm("semantic", 0.7, a=0.9, b=0.5), arm("keyword", 0.3, 0.2, c=0.8, b=0.6)])
    assert [hit.id for hit in hits] == ["a", "b", "c"]
    scores = [0.7 * 0.9 + 0.3 * 0.2, 0.7 * 0.5 + 0.3 * 0.6, 0.3 * 0.8]
    assert [hit.score for hit in hits] == pytest.approx(scores)


def test_contributions_explain_the_score() -> None:
    (hit,) = convex([arm("semantic", 3.0, 0.1), arm("keyword", 1.0, a=0.8)])
    assert hit.contributions["keyword"].rank == 1
    assert hit.contributions["keyword"].normalized == 0.8
    assert hit.contributions["keyword"].share == pytest.approx(0.2)
    assert hit.contributions["semantic"].rank is None
    assert hit.contributions["semantic"].normalized == 0.1
    assert hit.contributions["semantic"].share == pytest.approx(0.075)


def test_reciprocal_rank_is_the_weighted_sum_of_reciprocal_places() -> None:
    hits = reciprocal_rank([arm("a", 2.0, x=0.9, y=0.8), arm("b", 1.0, z=0.5, y=0.1)], k=10)
    best = 3 / 11
    scores = {hit.id: hit.score * best for hit in hits}
    assert [hit.id for hit in hits] == ["y", "x", "z"]
    assert scores == pytest.approx({"y": 2 / 12 + 1 / 12, "x": 2 / 11, "z": 1 / 11})
    assert hits[1].contributions["b"].share == 0.0


@pytest.mark.parametrize("fuse", [convex, reciprocal_rank])
def test_empty_arms(fuse: type) -> None:
    assert fuse([]) == []
    assert fuse([arm("a"), arm("b")]) == []
    (hit,) = fuse([arm("a", x=1.0), arm("b")])
    assert hit.score == 0.5


@pytest.mark.parametrize("fuse", [convex, reciprocal_rank])
def test_first_in_every_arm_with_the_highest_score_is_one(fuse: type) -> None:
    assert fuse([arm("a", 0.7, x=1.0), arm("b", 0.3, x=1.0)])[0].score == pytest.approx(1.0)


def test_one_arm_keeps_its_scores() -> None:
    hits = convex([arm("semantic", 0.7, a=0.9, b=0.25)])
    assert [(hit.id, hit.score) for hit in hits] == [("a", 0.9), ("b", 0.25)]


@pytest.mark.parametrize("fuse", [convex, reciprocal_rank])
def test_weight_zero_is_an_exact_no_op(fuse: type) -> None:
    alone = fuse([arm("a", 0.7, x=0.5, y=0.4)])
    assert fuse([arm("a", 0.7, x=0.5, y=0.4), arm("b", 0.0, 1.0, z=1.0)]) == alone


def test_equal_scores_are_ordered_by_id() -> None:
    assert [h.id for h in convex([arm("a", c=0.5, a=0.5, b=0.5)])] == ["a", "b", "c"]
    hits = reciprocal_rank([arm("a", z=0.9, y=0.8), arm("b", y=0.9, z=0.8)])
    assert [hit.id for hit in hits] == ["y", "z"]


def test_a_score_does_not_depend_on_what_else_was_found() -> None:
    (alone,) = convex([arm("a", 0.7, x=0.5), arm("b", 0.3, x=0.4)])
    among = convex([arm("a", 0.7, w=0.9, x=0.5), arm("b", 0.3, v=1.0, x=0.4)])
    assert {hit.id: hit.score for hit in among}["x"] == alone.score


@pytest.mark.parametrize("fuse", [convex, reciprocal_rank])
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1)),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1)),
    st.floats(0.01, 100),
    st.floats(0, 100),
)
def test_scores_stay_in_bounds_and_are_the_sum_of_their_shares(
    fuse: type, a: dict[str, float], b: dict[str, float], wa: float, wb: float
) -> None:
    arms = [
        arm(name, weight, **dict(sorted(scores.items(), key=lambda item: -item[1])))
        for name, scores, weight in (("a", a, wa), ("b", b, wb))
    ]
    hits = fuse(arms)
    assert {hit.id for hit in hits} == set(a) | (set(b) if wb > 0 else set())
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
    for hit in hits:
        assert 0 <= hit.score <= 1
        shares = sum(part.share for part in hit.contributions.values())
        assert hit.score == pytest.approx(shares)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused_by_name(weight: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        arm("keyword", weight)
    assert caught.value.field == "fusion.weights.keyword"


def test_all_weights_zero_and_a_bad_k_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"fusion\.weights"):
        convex([arm("a", 0.0, x=1.0)])
    with pytest.raises(InvalidInput, match=r"fusion\.k"):
        reciprocal_rank([arm("a", x=1.0)], k=-1)


@pytest.mark.parametrize(
    ("ids", "scores"),
    [(("a",), [0.1, 0.2]), (("a", "a"), [0.1, 0.1]), (("a",), [1.1]), (("a",), [math.nan])],
)
def test_arms_must_be_consistent(ids: tuple[str, ...], scores: list[float]) -> None:
    with pytest.raises(ValueError, match="arm semantic"):
        Arm("semantic", ids, np.array(scores))


def test_normalized_cosine_has_fixed_bounds() -> None:
    found = normalized_cosine([-1, -0.2, 0, 0.4, 1.0000001, math.nan])
    assert found.tolist() == [0, 0, 0, 0.4, 1, 0]


def test_the_unseen_lie_between_nothing_and_the_last_of_a_full_list() -> None:
    scores = np.array([0.9, 0.4])
    assert unseen_score(scores, depth=2) == 0.2
    assert unseen_score(scores, depth=3) == 0.0
    assert unseen_score(np.array([]), depth=0) == 0.0
