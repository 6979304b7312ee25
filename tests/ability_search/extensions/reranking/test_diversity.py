"""Maximal marginal relevance against the paper's criterion written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.reranking.diversity import diversified, similarities

DIRECTIONS = {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (0.8, 0.6), "-a": (-1.0, 0.0), "0": (0.0, 0.0)}


def picked(
    relevance: list[float], directions: str, trade_off: float, reach: list[int] | None = None
) -> tuple[list[int], list[float]]:
    vectors = np.array([DIRECTIONS[name] for name in directions.split()]).reshape(-1, 2)
    count = len(relevance)
    ids = [f"{n:03}" for n in range(count)]
    picks = diversified(
        relevance, similarities(vectors), ids, trade_off=trade_off, reach=reach or [count] * count
    )
    return [pick.place for pick in picks], [pick.score for pick in picks]


def test_negative_cosines_count_as_zero() -> None:
    found = similarities([DIRECTIONS[name] for name in ("a", "c", "b", "-a", "0")])
    assert found[0].tolist() == pytest.approx([1, 0.8, 0, 0, 0])
    assert found[4].tolist() == [0] * 5
    assert similarities(np.empty((0, 3))).shape == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_cosine_of_two_vectors_does_not_depend_on_how_many_are_compared(seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(90, 256))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = similarities(vectors)
    for count in range(1, 90):
        assert np.array_equal(similarities(vectors[:count]), whole[:count, :count])


def test_repetition_ranks_behind_a_new_text() -> None:
    assert picked([0.9, 0.8, 0.5], "a a b", 0.5)[0] == [0, 2, 1]
    assert picked([0.9, 0.8, 0.5], "a a b", 0.9)[0] == [0, 1, 2]


def test_score_is_the_weighted_sum_of_relevance_and_novelty() -> None:
    order, scores = picked([0.9, 0.8, 0.5], "a c b", 0.6)
    assert order == [0, 2, 1]
    assert scores == pytest.approx(
        [0.6 * 0.9 + 0.4, 0.6 * 0.5 + 0.4 * 1.0, 0.6 * 0.8 + 0.4 * (1 - 0.8)]
    )


def test_relevance_alone_keeps_scores_and_order() -> None:
    relevance = [0.9, 0.5, 0.5, 0.0]
    assert picked(relevance, "a a b c", 1.0) == ([0, 1, 2, 3], relevance)


def test_diversity_alone_starts_with_the_smallest_id() -> None:
    assert picked([0.9, 0.8, 0.1], "a a b", 0.0) == ([0, 2, 1], [1.0, 1.0, 0.0])


def test_picks_choose_only_within_their_reach() -> None:
    assert picked([0.9, 0.8, 0.5], "a a b", 0.5, reach=[2, 2, 3])[0] == [0, 1, 2]
    order, scores = picked([0.9, 0.8, 0.5], "a a b", 0.5, reach=[2, 2, 3])
    assert scores[2] < scores[1]


def test_number_of_picks_equals_the_number_of_reaches() -> None:
    assert picked([0.9, 0.8, 0.5], "a a b", 0.5, reach=[3, 3])[0] == [0, 2]


def test_pick_records_its_similarity() -> None:
    vectors = similarities([DIRECTIONS[name] for name in "acb"])
    picks = diversified([0.9, 0.8, 0.1], vectors, ["a", "b", "c"], trade_off=0.9, reach=[3] * 3)
    assert [(pick.place, pick.similarity) for pick in picks] == [
        (0, 0.0), (1, pytest.approx(0.8)), (2, pytest.approx(0.6)),
    ]  # fmt: skip


def test_no_candidates_give_no_picks() -> None:
    assert picked([], "", 0.5) == ([], [])


lists = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(sorted(DIRECTIONS))), min_size=1, max_size=30
)


@given(lists, st.floats(0, 1), st.integers(1, 30))
def test_picks_have_descending_scores(
    candidates: list[tuple[float, str]], trade_off: float, first: int
) -> None:
    ordered = sorted(candidates, key=lambda each: -each[0])
    relevance = [each[0] for each in ordered]
    count = len(relevance)
    reach = [min(count, max(first, i + 1)) for i in range(count)]
    order, scores = picked(relevance, " ".join(each[1] for each in ordered), trade_off, reach)
    assert sorted(order) == list(range(count))
    assert all(0 <= score <= 1 for score in scores)
    assert list(zip(scores, order, strict=True)) == sorted(
        zip(scores, order, strict=True), key=lambda pick: (-pick[0], pick[1])
    )


@given(lists, st.floats(0, 1))
def test_each_pick_has_the_greatest_value(
    candidates: list[tuple[float, str]], trade_off: float
) -> None:
    relevance = [each[0] for each in candidates]
    directions = " ".join(each[1] for each in candidates)
    order, _ = picked(relevance, directions, trade_off)
    similarity = similarities([DIRECTIONS[each[1]] for each in candidates])
    for step, place in enumerate(order):
        before = order[:step]
        worths = {
            other: trade_off * relevance[other]
            - (1 - trade_off) * max((similarity[other][each] for each in before), default=0.0)
            for other in order[step:]
        }
        assert worths[place] >= max(worths.values()) - 1e-12
