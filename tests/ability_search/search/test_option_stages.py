"""Rules, chosen fields and decay on candidates that are made up."""

from __future__ import annotations

from typing import Any

import pytest
from ability_search.querying import stages
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Plan, Pool, Search
from ability_search.querying.model import Candidate, Query
from ability_search.querying.options import Decay, FieldRule, FullText, Options
from hypothesis import given
from hypothesis import strategies as st

from ability_search.collection import Collection
from ability_search.config.schema import Ranking
from ability_search.text.bm25 import QueryTerms

DOCS = Collection("docs", "Chunk_docs_1", 1, "m", 1, "english", 10.0, "auto", 500, 0)
TERMS = QueryTerms((1,), (1.0,), 2.0)
NOW = 1_000 * 86_400_000

Chunk = tuple[float, float, int, Any]
"""Cosine, BM25 in chosen fields, createdAt and a value in the metadata."""


def ranked(chunks: list[Chunk], options: Options, depths: tuple[int, ...]) -> list[Candidate]:
    """What a semantic search that deep gives of these chunks."""
    order = sorted(range(len(chunks)), key=lambda n: (-chunks[n][0], n))[: depths[-1]]
    candidates = []
    for rank, n in enumerate(order, start=1):
        cosine, bm25, created, value = chunks[n]
        columns = {"fullText": bm25, "createdAt": created, "metadata": {"value": value}}
        item = Candidate(
            f"#{n}", f"docs:s:{n:03}", cosine, ranks={"semantic": rank}, columns=columns
        )
        candidates.append(item)
    query = Query("words", mode="semantic", options=options)
    plan = Plan(
        [Search("semantic", [1.0], depths[-1])],
        depths,
        beam=100,
        scan_below=0,
        columns=stages.columns(query),
        products={"fullText": TERMS} if options.full_text else {},
    )
    return stages.ranked(Pool(DOCS, candidates), Context(query, plan, Ranking(), NOW))


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
rules = st.builds(
    FieldRule,
    st.just("metadata.value"),
    st.floats(0, 100),
    st.just(("value",)),
    st.none() | st.just("a"),
    scalars,
    st.none() | st.sampled_from(["asc", "desc"]),
)
options = st.builds(
    Options,
    full_text=st.none() | st.builds(FullText, st.just(["title"]), st.floats(0, 1)),
    rules=st.lists(rules, max_size=3),
    decay=st.none()
    | st.builds(Decay, st.floats(0.1, 1000), st.floats(0, 1), st.floats(0, 1), st.just("me")),
)


@given(chunks, options, st.integers(1, 8))
def test_whatever_is_asked_for_deeper_searches_only_append(
    found: list[Chunk], asked: Options, first: int
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
def test_what_weighs_nothing_changes_nothing(found: list[Chunk]) -> None:
    nothing = Options(
        full_text=FullText(["title"], 0.0),
        rules=[FieldRule("metadata.value", 0.0, ("value",), contains="a", sort="asc")],
        decay=Decay(1.0, 0.0, 0.0, "me"),
    )
    weightless, plain = (
        [(item.chunk_id, item.score, item.trace) for item in ranked(found, asked, (100,))]
        for asked in (nothing, Options())
    )
    assert weightless == plain
    assert stages.columns(Query("words", options=nothing)) == []


def test_only_the_columns_that_count_are_read() -> None:
    asked = Options(
        rules=[
            FieldRule("source", 1.0, contains="a"),
            FieldRule("metadata.a", 1.0, ("a",), contains="a"),
            FieldRule("metadata.b", 1.0, ("b",), contains="a"),
            FieldRule("content", 0.0, contains="a"),
        ],
        decay=Decay(1.0, 0.0, 0.5),
    )
    assert stages.columns(Query("words", options=asked)) == ["source", "metadata", "createdAt"]


def test_a_value_that_is_missing_counts_as_none() -> None:
    rule = FieldRule("metadata.value", 1.0, ("value", "deep"), contains="a")
    for value in (None, "a", ["a"], {"other": "a"}):
        (item,) = ranked([(0.5, 0.0, 0, value)], Options(rules=[rule]), (10,))
        assert item.score == 0.25
    (item,) = ranked([(0.5, 0.0, 0, {"deep": "a"})], Options(rules=[rule]), (10,))
    assert item.score == 0.5


def test_what_was_stored_in_the_future_is_new() -> None:
    decay = Options(decay=Decay(1.0, 0.0, 1.0))
    (item,) = ranked([(0.5, 0.0, NOW + 5, None)], decay, (10,))
    assert item.score == 0.5


def test_stages_run_in_their_order() -> None:
    asked = Options(
        full_text=FullText(["title"], 0.5),
        rules=[FieldRule("metadata.value", 1.0, ("value",), contains="z")],
        decay=Decay(1000.0, 0.0, 1.0),
    )
    (item,) = ranked([(0.8, 2.0, 0, "a")], asked, (10,))
    assert [name for name in item.trace if name != "fusion"] == ["fullText", "rules", "decay"]
    by_words = 1 - 2.718281828459045**-1
    assert item.score == pytest.approx((0.4 + 0.5 * by_words) / 2 / 2)
