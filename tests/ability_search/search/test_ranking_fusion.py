"""Fusion: scores in [0, 1], comparable, and right when an arm is missing or silent."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from ability_search.ranking.fusion import (
    SIGNAL_WEIGHT_LIMIT,
    Arm,
    Fused,
    convex,
    normalized_cosine,
    peaked_share,
    reciprocal_rank,
    signal_weight,
    unseen_score,
)
from hypothesis import given
from hypothesis import strategies as st

from ability_search.errors import InvalidInput

Fuse = Callable[..., Fused]
NONE = math.nan
FUSIONS = [convex, reciprocal_rank]


def arm(name: str, *scores: float, weight: float = 1.0, unseen: float = 0.0) -> Arm:
    return Arm(name, np.array(scores, dtype=float), weight, unseen)


def test_convex_is_the_weighted_mean_of_the_arms() -> None:
    fused = convex(
        [
            arm("semantic", 0.9, 0.5, NONE, weight=0.7),
            arm("keyword", NONE, 0.6, 0.8, weight=0.3, unseen=0.2),
        ]
    )
    wanted = [0.7 * 0.9 + 0.3 * 0.2, 0.7 * 0.5 + 0.3 * 0.6, 0.3 * 0.8]
    assert fused.scores.tolist() == pytest.approx(wanted)
    assert fused.shares["keyword"].tolist() == pytest.approx([0.06, 0.18, 0.24])


def test_reciprocal_rank_is_the_weighted_sum_of_reciprocal_places() -> None:
    arms = [arm("a", 0.9, 0.8, NONE, weight=2.0), arm("b", NONE, 0.1, 0.5)]
    fused = reciprocal_rank(arms, k=10)
    best = 3 / 11
    wanted = [2 / 11, 2 / 12 + 1 / 12, 1 / 11]
    assert (fused.scores * best).tolist() == pytest.approx(wanted)
    assert fused.shares["b"][0] == 0.0


def test_ranks_are_places_and_equal_scores_keep_their_order() -> None:
    ranks = arm("a", 0.2, NONE, 0.9, 0.2).ranks
    assert ranks[[0, 2, 3]].tolist() == [2, 1, 3]
    assert math.isnan(ranks[1])


def test_an_arm_may_be_ordered_by_something_else_than_its_scores() -> None:
    scores, order = np.array([0.9, math.nan, 0.1]), np.array([3.0, math.nan, 5.0])
    ranks = Arm("a", scores, order=order).ranks
    assert ranks[[0, 2]].tolist() == [2, 1]
    assert math.isnan(ranks[1])


@pytest.mark.parametrize("fuse", FUSIONS)
def test_empty_arms(fuse: Fuse) -> None:
    assert fuse([arm("a"), arm("b")]).scores.tolist() == []
    fused = fuse([arm("a", 1.0, NONE), arm("b", NONE, NONE)])
    assert fused.scores.tolist() == [0.5, 0.0]
    assert fused.found.tolist() == [True, False]


@pytest.mark.parametrize("fuse", FUSIONS)
def test_first_in_every_arm_with_the_highest_score_is_one(fuse: Fuse) -> None:
    fused = fuse([arm("a", 1.0, weight=0.7), arm("b", 1.0, weight=0.3)])
    assert fused.scores.tolist() == pytest.approx([1.0])


def test_one_arm_keeps_its_scores() -> None:
    assert convex([arm("semantic", 0.9, 0.25, weight=0.7)]).scores.tolist() == [0.9, 0.25]


@pytest.mark.parametrize("fuse", FUSIONS)
def test_weight_zero_is_an_exact_no_op(fuse: Fuse) -> None:
    first = arm("a", 0.5, 0.4, NONE, weight=0.7)
    alone, both = fuse([first]), fuse([first, arm("b", NONE, NONE, 1.0, weight=0.0, unseen=1.0)])
    assert both.scores.tolist() == alone.scores.tolist()
    assert both.found.tolist() == [True, True, False]
    assert both.shares.keys() == {"a"}


def test_a_score_does_not_depend_on_what_else_was_found() -> None:
    alone = convex([arm("a", 0.5, weight=0.7), arm("b", 0.4, weight=0.3)])
    among = convex([arm("a", 0.9, 0.5, weight=0.7), arm("b", NONE, 0.4, weight=0.3)])
    assert among.scores[1] == alone.scores[0]


maybe = st.floats(0, 1) | st.just(NONE)


@pytest.mark.parametrize("fuse", FUSIONS)
@given(st.lists(st.tuples(maybe, maybe)), st.floats(0.01, 100), st.floats(0, 100))
def test_scores_stay_in_bounds_and_are_the_sum_of_their_shares(
    fuse: Fuse, scores: list[tuple[float, float]], wa: float, wb: float
) -> None:
    a, b = ([pair[place] for pair in scores] for place in (0, 1))
    fused = fuse([arm("a", *a, weight=wa), arm("b", *b, weight=wb)])
    assert ((fused.scores >= 0) & (fused.scores <= 1)).all()
    total = sum(fused.shares.values())
    assert isinstance(total, np.ndarray)
    assert fused.scores.tolist() == pytest.approx(total.tolist())
    known = [not math.isnan(x) or (wb > 0 and not math.isnan(y)) for x, y in scores]
    assert fused.found.tolist() == known


@pytest.mark.parametrize("fuse", FUSIONS)
def test_weights_are_relative_however_small(fuse: Fuse) -> None:
    least = math.ulp(0.0)
    small = fuse([arm("a", 0.9, 0.5, weight=least), arm("b", 0.1, 0.5, weight=least)])
    assert small.scores.tolist() == fuse([arm("a", 0.9, 0.5), arm("b", 0.1, 0.5)]).scores.tolist()


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused_by_name(weight: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        arm("keyword", weight=weight)
    assert caught.value.field == "fusion.weights.keyword"


def test_all_weights_zero_and_a_bad_k_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"fusion\.weights"):
        convex([arm("a", 1.0, weight=0.0)])
    with pytest.raises(InvalidInput, match=r"fusion\.k"):
        reciprocal_rank([arm("a", 1.0)], k=-1)


@pytest.mark.parametrize("score", [1.1, -0.1])
def test_scores_must_be_normalized(score: float) -> None:
    with pytest.raises(ValueError, match="retriever semantic"):
        arm("semantic", score)


def test_normalized_cosine_has_fixed_bounds() -> None:
    found = normalized_cosine([-1, -0.2, 0, 0.4, 1.0000001, math.nan])
    assert found.tolist() == [0, 0, 0, 0.4, 1, 0]


def test_the_unseen_lie_between_nothing_and_the_last_of_a_full_list() -> None:
    scores = np.array([0.9, 0.4])
    assert unseen_score(scores, depth=2) == 0.2
    assert unseen_score(scores, depth=3) == 0.0
    assert unseen_score(np.array([0.9, NONE, 0.4]), depth=3) == 0.0
    assert unseen_score(np.array([]), depth=0) == 0.0


def test_the_semantic_share_follows_how_far_its_first_hit_stands_out() -> None:
    def share(first: float, others: float, **options: float) -> float:
        return peaked_share(0.7, [others] * 20 + [first], slope=0.8, **options)

    assert share(0.8, 0.8) == pytest.approx(0.5)
    assert share(1.0, 0.0) == pytest.approx(0.9)
    gap = (0.8 - (0.8 + 9 * 0.5) / 10) / 0.8
    assert share(0.8, 0.5) == pytest.approx(0.7 + 0.8 * (gap - 0.25))
    assert share(0.8, 0.5, usual=gap) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("share", "cosines", "slope"),
    [
        (0.7, [0.9, *[0.1] * 9], 0.0),
        (0.7, [0.9, *[0.1] * 8], 0.8),
        (0.7, [-0.1] * 12, 0.8),
        (0.7, [], 0.8),
        (0.0, [0.9, *[0.1] * 9], 0.8),
        (1.0, [0.9, *[0.1] * 9], 0.8),
    ],
)
def test_the_share_stays_where_nothing_can_be_told(
    share: float, cosines: list[float], slope: float
) -> None:
    assert peaked_share(share, cosines, slope=slope) == share


def test_the_less_the_words_tell_the_more_a_signal_weighs() -> None:
    assert signal_weight(0, 7) == SIGNAL_WEIGHT_LIMIT
    assert signal_weight(7, 7) == pytest.approx(0.4)
    assert signal_weight(28, 7) == pytest.approx(1 / 7)
    assert signal_weight(28, 7) == pytest.approx(signal_weight(56, 14))
