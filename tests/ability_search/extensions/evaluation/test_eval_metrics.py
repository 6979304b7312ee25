"""The library's metrics against values worked out by hand."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.evaluation.evaluator import per_query, recall_curve
from ability_search.extensions.evaluation.runs import METRICS

QRELS = {
    "graded": {"a": 2, "b": 1, "c": 0},
    "deep": {f"r{n}": 1 for n in range(20)},
    "lost": {"z": 1},
    "unasked": {"z": 1},
}
RANKINGS = {
    "graded": ["x", "b", "c", "a"],
    # Ten that do not matter, then the relevant ones.
    "deep": [f"x{n}" for n in range(10)] + [f"r{n}" for n in range(20)],
    "lost": [],
}


def test_graded_judgements_discounted_by_rank() -> None:
    found = per_query(QRELS, RANKINGS, limit=100)["graded"]
    gained = 1 / log2(3) + 2 / log2(5)
    ideal = 2 / log2(2) + 1 / log2(3)
    assert found["nDCG@10"] == pytest.approx(gained / ideal)
    assert found["MRR@10"] == pytest.approx(1 / 2)
    assert (found["Hit@1"], found["Hit@3"], found["Hit@5"]) == (0, 1, 1)
    assert (found["Recall@10"], found["Recall@100"]) == (1, 1)


def test_what_comes_after_the_cutoff_does_not_count() -> None:
    found = per_query(QRELS, RANKINGS, limit=100)["deep"]
    assert found["nDCG@10"] == found["MRR@10"] == found["Recall@10"] == found["Hit@5"] == 0
    assert found["Recall@100"] == 1


@pytest.mark.parametrize("query", ["lost", "unasked"])
def test_a_query_that_found_nothing_has_zeros(query: str) -> None:
    found = per_query(QRELS, RANKINGS, limit=100)
    assert found[query] == dict.fromkeys(METRICS, 0.0)


def test_metrics_that_look_beyond_the_ranks_are_left_out() -> None:
    assert set(per_query(QRELS, RANKINGS, limit=10)["lost"]) == {*METRICS} - {"Recall@100"}
    assert set(per_query(QRELS, RANKINGS, limit=3)["lost"]) == {"Hit@1", "Hit@3"}


def test_documents_that_are_not_judged_only_take_up_room() -> None:
    found = per_query({"q": {"a": 1}}, {"q": ["b", "c", "a"]}, limit=10)["q"]
    assert found["nDCG@10"] == pytest.approx(1 / log2(4))
    assert found["MRR@10"] == pytest.approx(1 / 3)


def test_recall_is_a_mean_over_all_judged_queries() -> None:
    curve = recall_curve(QRELS, RANKINGS, limit=100)
    assert curve[1] == 0
    assert curve[2] == pytest.approx((1 / 2 + 0 + 0 + 0) / 4)
    assert curve[15] == pytest.approx((1 + 5 / 20 + 0 + 0) / 4)
    assert curve[100] == pytest.approx(2 / 4)
    assert max(curve) == 100


@given(st.permutations(["b", "aa", "a", "Z", "9", "é"]))
def test_the_order_alone_decides_whatever_the_ids(documents: list[str]) -> None:
    relevant = documents[2]
    found = per_query({"q": {relevant: 1}}, {"q": documents}, limit=10)["q"]
    assert found["MRR@10"] == pytest.approx(1 / 3)
    assert (found["Hit@1"], found["Hit@3"]) == (0, 1)
    assert found["nDCG@10"] == pytest.approx(1 / log2(4))
