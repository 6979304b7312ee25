"""Full text, rules and decay on made-up candidates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.search import values
from tests.ability_search.search.values import candidates_of, chunk, query_of, wanted_fields

from ability_search.search.candidates import Candidate
from ability_search.search.query import Query
from ability_search.search.wants import SearchRequest
from ability_search.text.bm25 import QueryTerms

TERMS = QueryTerms((1,), (1.0,), 2.0)
NOW = 1_000 * 86_400_000

Chunk = tuple[float, float, int, Any]
"""Cosine, BM25 in chosen fields, createdAt and a value in the metadata."""


def ranked(chunks: list[Chunk], query: Query, depths: tuple[int, ...]) -> list[Candidate]:
    """What a semantic search that deep gives of these chunks."""
    order = sorted(range(len(chunks)), key=lambda n: (-chunks[n][0], n))[: depths[-1]]
    candidates = []
    for rank, n in enumerate(order, start=1):
        cosine, bm25, created, value = chunks[n]
        columns = {"fullText": bm25, "created_at": created, "metadata": {"value": value}}
        item = chunk(f"#{n}", f"docs:s:{n:03}", cosine, ranks={"semantic": rank}, columns=columns)
        candidates.append(item)
    plan = SearchRequest(
        [1.0],
        depths=depths,
        fields=wanted_fields(query),
        products={"fullText": TERMS} if "fullText" in query.options else {},
    )
    return values.ranked(candidates_of(query, plan, candidates, NOW))


def options_of(**options: Any) -> Query:
    return query_of(mode="semantic", **options)


scalars = st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["a", "B", "ab"])
chunks = st.lists(
    st.tuples(
        st.floats(-1, 1),
        st.just(0.0) | st.floats(0, 20),
        st.integers(0, NOW + 86_400_000),
        scalars | st.lists(scalars, max_size=2),
    ),
    min_size=1,
    max_size=40,
)


def rule(name: str, weight: float, **rules: Any) -> dict[str, Any]:
    return {name: {"weight": weight, "rules": rules}}


rules = st.fixed_dictionaries(
    {},
    optional={
        "contains": st.just("a"),
        "priority": st.booleans() | st.integers(0, 9) | st.sampled_from(["a", "B", "ab"]),
        "sort": st.sampled_from(["asc", "desc"]),
    },
).filter(bool)
options = st.fixed_dictionaries(
    {},
    optional={
        "fullText": st.fixed_dictionaries(
            {"fields": st.just(["title"]), "weight": st.floats(0, 1)}
        ),
        "rerank": st.dictionaries(
            st.sampled_from(["metadata.value", "value"]),
            st.fixed_dictionaries({"weight": st.floats(0, 100), "rules": rules}),
        ),
        "decay": st.fixed_dictionaries(
            {
                "halfLifeDays": st.floats(0.1, 1000),
                "floor": st.floats(0, 1),
                "weight": st.floats(0, 1),
                "agentId": st.just("me"),
            }
        ),
    },
).map(lambda chosen: options_of(**chosen))


@given(chunks, options, st.integers(1, 8))
def test_deeper_search_only_appends_with_any_options(
    found: list[Chunk], asked: Query, first: int
) -> None:
    shallower: list[tuple[str, float]] = []
    depths: tuple[int, ...] = ()
    while len(shallower) < len(found):
        depths = (*depths, 2 * depths[-1] if depths else first)
        hits = [(item.chunk_id, item.score) for item in ranked(found, asked, depths)]
        assert hits[: len(shallower)] == shallower
        assert all(0 <= score <= 1 for _, score in hits)
        assert [score for _, score in hits] == sorted((s for _, s in hits), reverse=True)
        shallower = hits


@given(chunks)
def test_options_of_weight_zero_change_nothing(found: list[Chunk]) -> None:
    nothing = options_of(
        fullText={"fields": ["title"], "weight": 0.0},
        rerank=rule("metadata.value", 0.0, contains="a", sort="asc"),
        decay={"halfLifeDays": 1.0, "floor": 0.0, "weight": 0.0, "agentId": "me"},
    )
    weightless, plain = (
        [(item.chunk_id, item.score, item.trace) for item in ranked(found, asked, (100,))]
        for asked in (nothing, options_of())
    )
    assert weightless == plain
    assert wanted_fields(nothing) == []


def test_only_fields_of_effective_rules_are_read() -> None:
    asked = options_of(
        rerank={
            **rule("source", 1.0, contains="a"),
            **rule("metadata.a", 1.0, contains="a"),
            **rule("metadata.b", 1.0, contains="a"),
            **rule("content", 0.0, contains="a"),
        },
        decay={"halfLifeDays": 1.0, "floor": 0.0, "weight": 0.5},
    )
    assert wanted_fields(asked) == ["source", "metadata.a", "metadata.b", "created_at"]


def test_missing_value_counts_as_none() -> None:
    asked = options_of(rerank=rule("metadata.value.deep", 1.0, contains="a"))
    for value in (None, "a", ["a"], {"other": "a"}):
        (item,) = ranked([(0.5, 0.0, 0, value)], asked, (10,))
        assert item.score == pytest.approx(1 / 3)
    (item,) = ranked([(0.5, 0.0, 0, {"deep": "a"})], asked, (10,))
    assert item.score == pytest.approx(2 / 3)


def test_future_chunk_counts_as_new() -> None:
    decay = options_of(decay={"halfLifeDays": 1.0, "floor": 0.0, "weight": 1.0})
    (item,) = ranked([(0.5, 0.0, NOW + 5, None)], decay, (10,))
    assert item.score == pytest.approx(2 / 3)


def test_stages_run_in_their_order() -> None:
    asked = options_of(
        fullText={"fields": ["title"], "weight": 0.5},
        rerank=rule("metadata.value", 1.0, contains="z"),
        decay={"halfLifeDays": 1000.0, "floor": 0.0, "weight": 1.0},
    )
    (item,) = ranked([(0.5, 2.0, 0, "a")], asked, (10,))
    assert [name for name in item.trace if name != "fusion"] == ["fullText", "rules", "decay"]
    by_words = 1 - 2.718281828459045**-1
    assert item.score == pytest.approx((2 / 3 + by_words) / 2 / 2 / 2)
