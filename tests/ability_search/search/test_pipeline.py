"""Fusion in blocks, pages as slices of one list, and the floor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.search import values
from tests.ability_search.search.values import candidates_of, chunk, query_of

from ability_search.search.candidates import Answer, Candidate, Lane
from ability_search.search.limits import above
from ability_search.search.options import Fusion
from ability_search.search.wants import SearchRequest
from ability_search.text.bm25 import QueryTerms

TERMS = QueryTerms((1,), (1.0,), 2.0)
CONVEX = Fusion(method="convex")
RRF = Fusion(method="rrf")


def pool(cosines: list[float], bm25s: list[float], depth: int) -> list[Candidate]:
    """What two arms that were asked for ``depth`` give of chunks with these scores."""
    count = len(cosines)
    by_cosine = sorted(range(count), key=lambda n: (-cosines[n], n))[:depth]
    by_bm25 = sorted((n for n in range(count) if bm25s[n] > 0), key=lambda n: (-bm25s[n], n))[
        :depth
    ]
    candidates: dict[int, Candidate] = {}
    for rank, n in enumerate(by_cosine, start=1):
        item = candidates.setdefault(n, chunk(f"#{n}", f"{n:03}"))
        item.cosine, item.ranks["semantic"] = cosines[n], rank
    for rank, n in enumerate(by_bm25, start=1):
        item = candidates.setdefault(n, chunk(f"#{n}", f"{n:03}"))
        item.cosine, item.values["keyword"], item.ranks["keyword"] = cosines[n], bm25s[n], rank
    return list(candidates.values())


def ranked(
    candidates: list[Candidate],
    *,
    terms: QueryTerms | None = TERMS,
    semantic: bool = True,
    depths: tuple[int, ...] = (100,),
    choice: Fusion | None = None,
    traced: bool = False,
) -> list[tuple[str, float]]:
    plan = SearchRequest([1.0] if semantic else None, terms, depths=depths)
    query = query_of(fusion=choice, explain=traced)
    hits = values.ranked(candidates_of(query, plan, candidates))
    return [(item.chunk_id, item.score) for item in hits]


scores = st.lists(
    st.tuples(st.floats(-1, 1), st.just(0.0) | st.floats(0.1, 9)), min_size=1, max_size=60
)


@given(scores, st.integers(1, 8), st.sampled_from([CONVEX, RRF]))
def test_a_deeper_search_only_appends(
    chunks: list[tuple[float, float]], first: int, choice: Fusion
) -> None:
    cosines, bm25s = map(list, zip(*chunks, strict=True))
    depths: list[int] = []
    shallower: list[tuple[str, float]] = []
    while len(shallower) < len(chunks):
        depths.append(2 * depths[-1] if depths else first)
        candidates = pool(cosines, bm25s, depths[-1])
        whole = ranked(candidates, depths=tuple(depths), choice=choice)
        assert whole[: len(shallower)] == shallower
        assert len(whole) == len(candidates)
        assert all(0 <= score <= 1 for _, score in whole)
        assert [score for _, score in whole] == sorted((s for _, s in whole), reverse=True)
        shallower = whole


def test_the_default_is_the_weighted_mean() -> None:
    (hit,) = ranked(pool([0.5], [2.0], 10))
    assert hit[1] == pytest.approx((2 * 2 / 3 + 0.6321205588) / 3)


def test_no_candidates_give_no_hits() -> None:
    assert ranked([]) == []


def test_equal_scores_are_in_the_order_of_their_ids() -> None:
    candidates = pool([0.5] * 5, [1.0] * 5, 10)
    assert [id_ for id_, _ in ranked(candidates[::-1])] == ["000", "001", "002", "003", "004"]


@pytest.mark.parametrize("choice", [CONVEX, Fusion(method="convex", weights={"keyword": 0.0})])
def test_single_retriever_is_not_weighted(choice: Fusion) -> None:
    candidates = pool([0.5, 0.1], [2.0, 4.0], 10)
    by_words = ranked(candidates, semantic=False, choice=choice)
    assert [id_ for id_, _ in by_words] == ["001", "000"]
    assert by_words[0][1] == pytest.approx(0.8646647168)
    by_meaning = ranked(candidates, terms=None, choice=choice)
    expected: list[tuple[str, Any]] = [("000", pytest.approx(2 / 3)), ("001", pytest.approx(0.42))]
    assert by_meaning == expected


def test_candidate_of_a_further_retriever_is_kept() -> None:
    item = chunk("#1", "a", ranks={"other": 1}, values={"other": 3.0})
    assert ranked([item], semantic=False) == [("a", 0.0)]


def test_traces_are_recorded_only_with_explain() -> None:
    candidates = pool([0.5, 0.1], [2.0, 0.0], 10)
    ranked(candidates)
    assert all(item.trace == {} for item in candidates)
    ranked(candidates, traced=True)
    for item in candidates:
        arms = item.trace["fusion"]["arms"]
        assert sum(arm["share"] for arm in arms.values()) == pytest.approx(item.score)
    assert candidates[1].trace["fusion"]["arms"]["keyword"]["rank"] is None


def test_floor_applies_to_the_cosine_or_the_keyword_score() -> None:
    low = chunk("#1", "a", cosine=0.2, fused=0.9, score=0.3)
    high = chunk("#2", "b", cosine=0.6, fused=0.1, score=0.7)
    unknown = chunk("#3", "c", fused=0.5)
    every = [low, high, unknown]
    assert above(every, 0.6, mode="hybrid") == [high]
    assert above(every, 0.2, mode="semantic") == [low, high]
    assert above(every, 0.5, mode="keyword") == [low, unknown]


@given(
    hits=st.integers(0, 30),
    unfinished=st.sets(st.sampled_from(["semantic", "keyword", "keywordAspects"])),
    weights=st.sampled_from([{}, {"semantic": 0.0, "keyword": 1.0}, {"semantic": 1.0}]),
    options=st.sampled_from(
        [{}, {"reranker": {"top": 25}}, {"extended": ["summary"]}, {"minSignals": 1}]
    ),
)
def test_a_short_page_is_searched_deeper_until_nothing_is_left(
    hits: int, unfinished: set[str], weights: dict[str, float], options: dict[str, Any]
) -> None:
    """Whatever made it short."""
    candidates = candidates_of(query_of(limit=10, **options), SearchRequest(depths=(10,)))
    candidates.wants = values.PIPELINE.wants(candidates.query)
    candidates.unfinished, candidates.weights = sorted(unfinished), weights
    candidates.exhausted = "minSignals" in options
    candidates.ranked = [chunk(f"#{n}", f"docs:{n}:0") for n in range(hits)]
    more = "minSignals" not in options and any(weights.get(name, 1.0) for name in unfinished)
    short = hits < (25 if "reranker" in options else 10)
    lane = Lane("docs", candidates.query, candidates.wants, 10, candidates, ready=True)
    answer = Answer(candidates.query, lanes={"docs": [lane]}, searched={"docs": candidates})
    assert values.PIPELINE._deepen(answer) == (not lane.ready) == (short and more)
