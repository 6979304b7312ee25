"""Fusion: scores in [0, 1] that mean the same whatever the model, and whatever else was found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.search.values import DOCS, candidates_of, chunk, query_of

from ability_search.collection import CALIBRATION, Collection
from ability_search.errors import InvalidInput
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.fusion import (
    fold_kinds,
    fuse,
    join_blocks,
    nearness,
    support,
    trust,
)
from ability_search.search.wants import BM25, SearchRequest
from ability_search.text.bm25 import QueryTerms

TERMS = QueryTerms((1,), (1.0,), 1.0)
BOTH = SearchRequest(vector=[1.0], terms=TERMS, depths=(40, 80))
OFTEN = 1000.0
"""A raw keyword score whose normalized one is 1."""


def found(name: str, cosine: float | None, raw: float = 0.0, **ranks: int) -> Candidate:
    """A candidate with its raw scores; it is among the first of both retrievers by default."""
    ranks = ranks or {"semantic": 1, "keyword": 1}
    values = {"semantic": cosine or 0.0, "keyword": raw}
    return chunk(
        f"#{name}",
        name,
        cosine,
        ranks=dict(ranks),
        values={by: values[by] for by in ranks},
        columns={BM25: raw},
        depth=40 if min(ranks.values()) <= 40 else 80,
    )


def fused(*items: Candidate, plan: SearchRequest = BOTH, **options: Any) -> Candidates:
    """Candidates after fusion."""
    collection = options.pop("collection", DOCS)
    failed = options.pop("failed", {})
    candidates = candidates_of(query_of(explain=True, **options), plan, items)
    candidates.collection, candidates.failed = collection, failed
    fuse(candidates)
    return candidates


def scores(candidates: Candidates) -> dict[str, float]:
    return {item.chunk_id: item.score for block in candidates.blocks for item in block}


def test_the_score_is_the_weighted_mean_of_nearness_and_words() -> None:
    one, other = found("a", 0.5, OFTEN), found("b", -1.0, OFTEN)
    result = fused(one, other)
    assert scores(result) == pytest.approx({"a": (2 * 2 / 3 + 1) / 3, "b": 1 / 3})
    assert one.trace["fusion"]["arms"]["semantic"]["share"] == pytest.approx(4 / 9)
    assert result.relevance == pytest.approx(0.778)


def test_words_count_exactly_for_what_only_the_other_retriever_found() -> None:
    listed, unlisted = found("a", 0.3, 0.7), found("b", 0.3, 0.7, semantic=3)
    result = scores(fused(listed, unlisted))
    assert result["a"] == result["b"]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 9)), min_size=1, max_size=9))
def test_a_score_does_not_depend_on_what_else_was_found(values: list[tuple[float, float]]) -> None:
    option = {"method": "convex", "weights": {"semantic": 2}}
    items = [found(str(n), *each) for n, each in enumerate(values)]
    together = scores(fused(*items, fusion=option))
    alone = [scores(fused(found("0", *each), fusion=option))["0"] for each in values]
    assert list(together.values()) == pytest.approx(alone)
    assert all(0 <= each <= 1 for each in alone)


@given(st.floats(-0.3, 0.5), st.floats(0.05, 1.2), st.floats(-0.3, 0.3))
def test_a_model_with_other_cosines_gives_the_same_scores(
    cosine: float, scale: float, shift: float
) -> None:
    own = replace(DOCS, chance=0.1, near=0.5)
    other = replace(DOCS, chance=scale * 0.1 + shift, near=scale * 0.5 + shift)
    same = nearness([cosine], own)
    assert nearness([scale * cosine + shift], other) == pytest.approx(same, abs=1e-6)


@given(
    st.floats(-0.2, 1.0), st.floats(0.02, 1.0), st.lists(st.floats(-1, 1), min_size=2, unique=True)
)
def test_nearness_keeps_the_order_of_cosines_under_any_model(
    chance: float, gap: float, cosines: list[float]
) -> None:
    own = replace(DOCS, chance=chance, near=chance + gap)
    mapped = nearness(sorted(cosines), own)
    assert (np.diff(mapped) >= 0).all()
    assert ((mapped >= 0) & (mapped <= 1)).all()
    assert nearness([-1.0, 1.0, float("nan"), None], own).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_model_that_does_not_know_the_texts_only_orders_what_has_no_words() -> None:
    assert trust(DOCS) == 1.0
    unaware = replace(DOCS, agreement=0.0)
    near, worded, neither = found("a", 1.0), found("b", -0.5, 0.2), found("c", -0.5)
    result = scores(fused(near, worded, neither, collection=unaware))
    assert sorted(result, key=lambda name: -result[name]) == ["b", "a", "c"]
    assert 0 < trust(replace(DOCS, agreement=0.1)) < 1


def test_vectors_count_as_far_as_words_support_their_first_hits() -> None:
    semantic = np.array([0.9, 0.8, 0.7, 0.1, 0.0])
    assert support(semantic, np.zeros(5)) == 1.0
    assert support(semantic, np.array([0.6, 0.3, 0.0, 0.6, 0.0])) == 1.0
    assert support(semantic, np.array([0.0, 0.0, 0.09, 0.6, 0.0])) == pytest.approx(1 / 6)
    assert 0 < support(semantic, np.array([0.0, 0.0, 0.0, 0.6, 0.5])) < 0.02
    named, near = found("a", -0.5, 1.0), [found(str(n), 0.9 - n / 100) for n in range(3)]
    assert max(scores(fused(named, *near)).items(), key=lambda each: each[1])[0] == "a"


def test_reciprocal_rank_is_the_weighted_sum_of_reciprocal_places() -> None:
    first, second = found("a", 0.9, 1.0, semantic=1, keyword=2), found("b", 0.5, 2.0, keyword=1)
    option = {"method": "rrf", "k": 10, "weights": {"semantic": 2}}
    result = scores(fused(first, second, fusion=option))
    best = 3 / 11
    wanted = {"a": (2 / 11 + 1 / 12) / best, "b": (1 / 11) / best}
    assert result == pytest.approx(wanted)


@pytest.mark.parametrize("method", ["convex", "rrf"])
def test_a_retriever_of_weight_0_brings_nothing(method: str) -> None:
    option = {"method": method, "weights": {"keyword": 0}}
    both, only = found("a", 0.4, 1.0), found("b", 0.9, 2.0, keyword=1)
    assert scores(fused(both, only, fusion=option)).keys() == {"a"}


def test_all_weights_0_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"fusion\.weights"):
        fused(
            found("a", 0.4),
            fusion={"method": "convex", "weights": {"keyword": 0, "semantic": 0}},
        )


@pytest.mark.parametrize(("failed", "score"), [("semantic", 1.0), ("keyword", 2 / 3)])
def test_the_other_retriever_counts_alone_if_one_failed(failed: str, score: float) -> None:
    result = fused(found("a", 0.5, OFTEN), failed={failed: "reason"})
    assert scores(result) == pytest.approx({"a": score})


def test_a_deeper_search_changes_nothing_of_what_a_shallower_one_finds() -> None:
    seen = found("a", 0.1, 0.5, semantic=7, keyword=60)
    deep = found("b", 0.9, OFTEN, semantic=50)
    result = fused(seen, deep)
    assert (seen.ranks, deep.ranks) == ({"semantic": 7}, {"semantic": 50})
    assert [[item.chunk_id for item in block] for block in result.blocks] == [["a"], ["b"]]
    join_blocks(result)
    assert [item.chunk_id for item in result.ranked] == ["a", "b"]
    assert deep.score < seen.score


def test_a_collection_that_was_not_measured_has_usual_cosines() -> None:
    assert (DOCS.chance, DOCS.near, DOCS.agreement) == CALIBRATION
    assert isinstance(DOCS, Collection)
    assert nearness(np.array([-0.5, 0.5]), DOCS).tolist() == pytest.approx([0.05, 2 / 3])


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
