"""Fusion: scores in [0, 1], comparable, and correct if a retriever is missing or found nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.search.values import chunk

from ability_search.errors import InvalidInput
from ability_search.search.candidates import Candidate
from ability_search.search.fusion import (
    SIGNAL_WEIGHT_LIMIT,
    Fused,
    RankedList,
    Trust,
    convex,
    fold_kinds,
    normalized_cosine,
    reciprocal_rank,
    relevance,
    signal_weight,
    trust,
    unseen_score,
)

Fuse = Callable[..., Fused]
NONE = math.nan
FUSIONS = [convex, reciprocal_rank]


def listed(name: str, *scores: float, weight: float = 1.0, unseen: float = 0.0) -> RankedList:
    return RankedList(name, np.array(scores, dtype=float), weight, unseen)


def test_convex_is_the_weighted_mean_of_the_lists() -> None:
    fused = convex(
        [
            listed("semantic", 0.9, 0.5, NONE, weight=0.7),
            listed("keyword", NONE, 0.6, 0.8, weight=0.3, unseen=0.2),
        ]
    )
    wanted = [0.7 * 0.9 + 0.3 * 0.2, 0.7 * 0.5 + 0.3 * 0.6, 0.3 * 0.8]
    assert fused.scores.tolist() == pytest.approx(wanted)
    assert fused.shares["keyword"].tolist() == pytest.approx([0.06, 0.18, 0.24])


def test_reciprocal_rank_is_the_weighted_sum_of_reciprocal_places() -> None:
    lists = [listed("a", 0.9, 0.8, NONE, weight=2.0), listed("b", NONE, 0.1, 0.5)]
    fused = reciprocal_rank(lists, k=10)
    best = 3 / 11
    wanted = [2 / 11, 2 / 12 + 1 / 12, 1 / 11]
    assert (fused.scores * best).tolist() == pytest.approx(wanted)
    assert fused.shares["b"][0] == 0.0


def test_equal_scores_rank_in_input_order() -> None:
    ranks = listed("a", 0.2, NONE, 0.9, 0.2).ranks
    assert ranks[[0, 2, 3]].tolist() == [2, 1, 3]
    assert math.isnan(ranks[1])


def test_list_may_be_ordered_by_other_values_than_its_scores() -> None:
    scores, order = np.array([0.9, math.nan, 0.1]), np.array([3.0, math.nan, 5.0])
    ranks = RankedList("a", scores, order=order).ranks
    assert ranks[[0, 2]].tolist() == [2, 1]
    assert math.isnan(ranks[1])


@pytest.mark.parametrize("fuse", FUSIONS)
def test_empty_lists_fuse_to_nothing(fuse: Fuse) -> None:
    assert fuse([listed("a"), listed("b")]).scores.tolist() == []
    fused = fuse([listed("a", 1.0, NONE), listed("b", NONE, NONE)])
    assert fused.scores.tolist() == [0.5, 0.0]
    assert fused.found.tolist() == [True, False]


@pytest.mark.parametrize("fuse", FUSIONS)
def test_first_in_every_list_with_the_highest_score_is_one(fuse: Fuse) -> None:
    fused = fuse([listed("a", 1.0, weight=0.7), listed("b", 1.0, weight=0.3)])
    assert fused.scores.tolist() == pytest.approx([1.0])


def test_single_list_keeps_its_scores() -> None:
    assert convex([listed("semantic", 0.9, 0.25, weight=0.7)]).scores.tolist() == [0.9, 0.25]


@pytest.mark.parametrize("fuse", FUSIONS)
def test_weight_zero_is_an_exact_no_op(fuse: Fuse) -> None:
    first = listed("a", 0.5, 0.4, NONE, weight=0.7)
    alone, both = (
        fuse([first]),
        fuse([first, listed("b", NONE, NONE, 1.0, weight=0.0, unseen=1.0)]),
    )
    assert both.scores.tolist() == alone.scores.tolist()
    assert both.found.tolist() == [True, True, False]
    assert both.shares.keys() == {"a"}


def test_a_score_does_not_depend_on_what_else_was_found() -> None:
    alone = convex([listed("a", 0.5, weight=0.7), listed("b", 0.4, weight=0.3)])
    among = convex([listed("a", 0.9, 0.5, weight=0.7), listed("b", NONE, 0.4, weight=0.3)])
    assert among.scores[1] == alone.scores[0]


maybe = st.floats(0, 1) | st.just(NONE)


@pytest.mark.parametrize("fuse", FUSIONS)
@given(st.lists(st.tuples(maybe, maybe)), st.floats(0.01, 100), st.floats(0, 100))
def test_scores_stay_in_bounds_and_are_the_sum_of_their_shares(
    fuse: Fuse, scores: list[tuple[float, float]], wa: float, wb: float
) -> None:
    a, b = ([pair[place] for pair in scores] for place in (0, 1))
    fused = fuse([listed("a", *a, weight=wa), listed("b", *b, weight=wb)])
    assert ((fused.scores >= 0) & (fused.scores <= 1)).all()
    total = sum(fused.shares.values())
    assert isinstance(total, np.ndarray)
    assert fused.scores.tolist() == pytest.approx(total.tolist())
    known = [not math.isnan(x) or (wb > 0 and not math.isnan(y)) for x, y in scores]
    assert fused.found.tolist() == known


@pytest.mark.parametrize("fuse", FUSIONS)
def test_weights_are_relative_however_small(fuse: Fuse) -> None:
    least = math.ulp(0.0)
    small = fuse([listed("a", 0.9, 0.5, weight=least), listed("b", 0.1, 0.5, weight=least)])
    assert (
        small.scores.tolist()
        == fuse([listed("a", 0.9, 0.5), listed("b", 0.1, 0.5)]).scores.tolist()
    )


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_invalid_weight_is_refused_by_name(weight: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        listed("keyword", weight=weight)
    assert caught.value.field == "fusion.weights.keyword"


def test_all_weights_zero_and_a_bad_k_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"fusion\.weights"):
        convex([listed("a", 1.0, weight=0.0)])
    with pytest.raises(InvalidInput, match=r"fusion\.k"):
        reciprocal_rank([listed("a", 1.0)], k=-1)


@pytest.mark.parametrize("score", [1.1, -0.1])
def test_scores_must_be_normalized(score: float) -> None:
    with pytest.raises(ValueError, match="retriever semantic"):
        listed("semantic", score)


def test_normalized_cosine_has_fixed_bounds() -> None:
    found = normalized_cosine([-1, -0.2, 0, 0.4, 1.0000001, math.nan])
    assert found.tolist() == [0, 0, 0, 0.4, 1, 0]


def test_unseen_score_is_half_of_the_last_score_of_a_full_list() -> None:
    scores = np.array([0.9, 0.4])
    assert unseen_score(scores, depth=2) == 0.2
    assert unseen_score(scores, depth=3) == 0.0
    assert unseen_score(np.array([0.9, NONE, 0.4]), depth=3) == 0.0
    assert unseen_score(np.array([]), depth=0) == 0.0


def scores_of(first: float, others: float, count: int = 12) -> np.ndarray:
    return np.array([*[others] * (count - 1), first])


def test_trust_is_read_from_gaps_and_agreement() -> None:
    keyword = np.array([*[0.2] * 10, 0.5, 0.8])
    found = trust(scores_of(0.8, 0.5), keyword)
    assert found is not None
    assert found.semantic_gap == pytest.approx((0.8 - (0.8 + 9 * 0.5) / 10) / 0.8)
    assert found.keyword_gap == pytest.approx((0.8 - (0.8 + 0.5 + 8 * 0.2) / 10) / 0.8)
    assert found.agreement == pytest.approx((0.8 + 0.2 + 0.2) / 3 / 0.8)


def test_the_semantic_share_grows_with_its_gap_and_agreement_and_falls_with_the_other_gap() -> None:
    usual = Trust(0.2, 0.4, 0.6).semantic_share(0.5, 0.6)
    assert usual == pytest.approx(0.5)
    assert Trust(0.3, 0.4, 0.6).semantic_share(0.5, 0.6) == pytest.approx(0.56)
    assert Trust(0.2, 0.4, 1.0).semantic_share(0.5, 0.6) == pytest.approx(0.644)
    assert Trust(0.2, 0.8, 0.6).semantic_share(0.5, 0.6) == pytest.approx(0.356)
    assert Trust(0.9, 0.0, 1.0).semantic_share(0.5, 0.6) == pytest.approx(0.8)
    assert Trust(0.0, 0.9, 0.0).semantic_share(0.5, 2.0) == pytest.approx(0.2)


@pytest.mark.parametrize("usual", [0.0, 0.5, 1.0])
def test_the_share_is_kept_without_a_slope_or_without_the_other_retriever(usual: float) -> None:
    slope = 0.0 if usual == 0.5 else 0.6
    assert Trust(0.9, 0.0, 1.0).semantic_share(usual, slope) == usual


@pytest.mark.parametrize(
    "semantic",
    [
        scores_of(0.9, 0.1, count=9),
        np.zeros(12),
        np.array([]),
        np.array([*[0.5] * 9, NONE, NONE, NONE]),
    ],
)
def test_there_is_no_evidence_without_enough_scores(semantic: np.ndarray) -> None:
    assert trust(semantic, np.full(len(semantic), 0.5)) is None


def test_relevance_needs_a_near_text_or_its_words() -> None:
    assert relevance(-0.3, 0.0, 1.0) == relevance(0.0, 0.0, 1.0) < relevance(0.017, 0.0, 1.0) < 0.01
    expected = 1 / (1 + math.exp(5.1 - 2.43 - 0.6))
    assert relevance(0.3, 0.2, 1.0) == relevance(0.3, 0.2, 0.5) == pytest.approx(expected, abs=1e-3)
    assert relevance(0.3, 0.9, 1.0) > 0.4
    assert relevance(0.7, 0.5, 1.0) > 0.85


def test_words_of_most_chunks_are_no_evidence_of_relevance() -> None:
    assert relevance(0.2, 0.9, 0.0) == relevance(0.2, 0.0, 1.0) < relevance(0.2, 0.9, 0.1) < 0.1


def test_a_keyword_list_without_scores_agrees_with_nothing() -> None:
    assert trust(scores_of(0.5, 0.5), np.zeros(12)) == Trust(0.0, 0.0, 0.0)


def test_signal_weighs_more_with_less_informative_words() -> None:
    assert signal_weight(0, 7) == SIGNAL_WEIGHT_LIMIT
    assert signal_weight(7, 7) == pytest.approx(0.4)
    assert signal_weight(28, 7) == pytest.approx(1 / 7)
    assert signal_weight(28, 7) == pytest.approx(signal_weight(56, 14))


# Kinds give place and score to what they stand for.


def scored(name: str, score: float = 0.0) -> Candidate:
    return chunk(f"#{name}", name, score=score, fused=score)


def kind(of: Candidate, name: str, score: float) -> Candidate:
    item = scored(name, score)
    item.stands_for, item.columns = of, {"kind": "summary"}
    return item


def places(blocks: list[list[Candidate]]) -> list[list[tuple[str, float]]]:
    return [[(item.chunk_id, item.score) for item in block] for block in blocks]


def test_without_kinds_nothing_changes() -> None:
    blocks = [[scored("a", 0.5), scored("b", 0.4)], [scored("c", 0.9)]]
    assert places(fold_kinds(blocks)) == places(blocks)
    assert fold_kinds([]) == []


def test_the_best_score_counts_and_is_explained() -> None:
    a = scored("a", 0.5)
    assert places(fold_kinds([[a, kind(a, "x", 0.4), kind(a, "y", 0.7)]])) == [[("a", 0.7)]]
    assert a.trace["extended"]["chunkId"] == "y"


def test_chunk_with_a_better_own_score_is_unchanged() -> None:
    a = scored("a", 0.5)
    assert places(fold_kinds([[kind(a, "x", 0.5), a]])) == [[("a", 0.5)]]
    b = scored("b", 0.6)
    assert places(fold_kinds([[b, kind(b, "x", 0.5)]])) == [[("b", 0.6)]]
    assert "extended" not in b.trace


def test_chunk_of_an_earlier_block_is_not_repeated() -> None:
    a = scored("a", 0.9)
    blocks = [[kind(a, "x", 0.4)], [a, scored("b", 0.2)]]
    assert places(fold_kinds(blocks)) == [[("a", 0.4)], [("b", 0.2)]]


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1), st.booleans()), max_size=20))
def test_each_chunk_occurs_once_with_its_best_score(
    given_: list[tuple[int, float, bool]],
) -> None:
    targets = [scored(str(n)) for n in range(6)]
    best: dict[str, float] = {}
    block = []
    for place, (n, score, itself) in enumerate(given_):
        if itself and targets[n] in block:
            continue
        if itself:
            targets[n].score = score
        block.append(targets[n] if itself else kind(targets[n], f"x{place}", score))
        best[str(n)] = max(score, best.get(str(n), 0.0))
    found = fold_kinds([block])
    assert {item.chunk_id: item.score for part in found for item in part} == best
