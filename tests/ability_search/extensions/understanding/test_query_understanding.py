"""Times and exclusions in a query, without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.ability_search.search import values
from tests.ability_search.search.values import (
    DOCS,
    PIPELINE,
    candidates_of,
    chunk,
    query_of,
    understood_query,
    wanted_fields,
)

from ability_search.collection import Collection
from ability_search.extensions.understanding.intent_scores import (
    EXCLUSION_PENALTY,
    TIME_CLOSENESS,
    TIME_ORDER,
    time_weight,
)
from ability_search.extensions.understanding.periods import Period, iso_day, months, one_day
from ability_search.filters.tree import And, Exists, Field, HasFacet
from ability_search.search.candidates import Candidate
from ability_search.search.query import Query
from ability_search.search.retrievers import pooled, requested
from ability_search.search.wants import FurtherSearch, SearchRequest, Vectors
from ability_search.store.records import Row
from ability_search.text.bm25 import QueryTerms
from ability_search.text.term_statistics import TermStatistics

TERMS = QueryTerms((1,), (1.0,), 2.0)
DAY_MS = 86_400_000
NOW = (one_day(2026, 3, 25).first or 0) * DAY_MS
MARCH = months(2021, 3)
MARCH_RANGE = {"from": "2021-03-01", "to": "2021-03-31"}
PLAN = SearchRequest(terms=TERMS, depths=(10,))


def read(text: str, **options: Any) -> Query:
    return understood_query(text, now=NOW, explain=True, **options)


def candidate(name: str, *periods: Period, score: float = 0.5, **columns: Any) -> Candidate:
    dates = [end for period in periods for end in (period.first, period.last)]
    found = chunk(f"#{name}", name, 0.5, ranks={"keyword": 1}, values={"keyword": 1.0})
    found.columns = {"dates": dates, **columns}
    found.score = score
    return found


def scored(query: Query, *items: Candidate, plan: SearchRequest = PLAN) -> dict[str, float]:
    candidates = candidates_of(query, plan, items, NOW)
    candidates.blocks = [list(items)] if items else []
    values.score(candidates)
    return {item.chunk_id: item.score for item in items}


def request_of(
    query: Query, vectors: Vectors | None, collection: Collection = DOCS
) -> SearchRequest:
    """The searches for a query in a collection without texts."""
    candidates = replace(candidates_of(query, SearchRequest(), now=NOW), collection=collection)
    candidates.wants, candidates.vectors = PIPELINE.wants(query), vectors
    candidates.statistics = TermStatistics.empty()
    return requested(candidates)


def test_query_without_intent_is_its_own_topic() -> None:
    query = query_of("caching in 2025 besides Redis")
    assert query.topic == query.asked.query
    assert PIPELINE.wants(query).vectors == {"cosine": query.asked.query}
    assert wanted_fields(query) == []
    assert query.understood is None
    assert query.explained == {}


def test_embedded_texts_are_named_by_their_columns() -> None:
    text = "what was decided on caching besides Redis or disks"
    query, topic = read(text), "what was decided on caching"
    phrases = {"excluded0": "Redis", "excluded1": "disks"}
    assert PIPELINE.wants(query).vectors == {"cosine": topic} | phrases
    wants = PIPELINE.wants(read(text, hypotheticalAnswer="an answer"))
    assert wants.vectors["cosine"] == "an answer"


def test_only_needed_fields_are_read() -> None:
    assert wanted_fields(read("caching besides Redis")) == []
    assert wanted_fields(read("caching in 2025")) == ["dates"]
    assert wanted_fields(read("caching", timeRange=MARCH_RANGE)) == ["dates", "created_at"]
    assert wanted_fields(read("latest on caching")) == ["dates", "created_at"]
    assert wanted_fields(read("caching in 2025", temporal={"weight": 0.0})) == []
    assert wanted_fields(read("latest on caching", temporal={"weight": 0.0})) == []


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
def test_dated_search_uses_the_vector_or_the_terms(mode: Any) -> None:
    own = Exists(Field("title"))
    query = structs.replace(read("caching in March 2021", mode=mode), filter=own)
    vectors = None if mode == "keyword" else {"cosine": [1.0]}
    plan = request_of(query, vectors)
    dated = plan.searches()[-1]
    assert (dated.name, dated.limit) == ("dated", 30)
    assert dated.by == (plan.vector if vectors else plan.terms)
    assert dated.filter == And((HasFacet(("2021-02", "2021-03", "2021-04")), own))


@pytest.mark.parametrize(
    ("mode", "agreement", "share"),
    [("keyword", 1.0, 0.5), ("hybrid", 1.0, 0.0), ("hybrid", 0.1, 0.25), ("hybrid", 0.0, 0.495)],
)
def test_words_of_a_time_count_as_far_as_no_model_knows_the_texts(
    mode: str, agreement: float, share: float
) -> None:
    collection = replace(DOCS, agreement=agreement)
    vectors = None if mode == "keyword" else {"cosine": [1.0]}
    plan = request_of(read("caching in March 2021", mode=mode), vectors, collection)
    assert plan.terms is not None
    topic = request_of(read("caching", mode=mode), vectors, collection).terms
    assert topic is not None
    assert plan.terms.information == pytest.approx(topic.information * (1 + share))
    assert (len(plan.terms.ids) > len(topic.ids)) == bool(share)


def test_dated_candidates_have_the_score_of_their_search() -> None:
    row = Row("#a", "a", 0.7, {"cosine": 0.7})
    (by_vector,) = pooled({"dated": [row]}, DOCS, PLAN.depths)
    assert (by_vector.cosine, by_vector.ranks) == (0.7, {"dated": 1})
    (by_terms,) = pooled({"dated": [structs.replace(row, columns={})]}, DOCS, PLAN.depths)
    assert (by_terms.cosine, by_terms.values) == (None, {"dated": 0.7})
    dated = FurtherSearch("dated", HasFacet(("2021-03",)), limit=30)
    plan = structs.replace(PLAN, further=[dated])
    (hit,) = values.ranked(candidates_of(query_of(mode="keyword"), plan, [by_terms], NOW))
    assert hit.score == pytest.approx(float(TERMS.normalized([0.7])[0]))


def test_closeness_is_a_share_of_the_score() -> None:
    query = read("caching in March 2021", temporal={"weight": 0.25})
    within, outside = one_day(2021, 3, 12), one_day(2011, 1, 1)
    assert scored(
        query,
        candidate("in", within),
        candidate("out", outside),
        candidate("none"),
        candidate("both", outside, within),
    ) == {
        "in": 0.75 * 0.5 + 0.25,
        "out": 0.75 * 0.5,
        "none": 0.75 * 0.5,
        "both": 0.75 * 0.5 + 0.25,
    }


def test_dates_count_less_with_informative_words() -> None:
    query = read("caching in March 2021")
    plans = [
        structs.replace(PLAN, informative=information) for information in (0.0, 0.5, 2.0, 10.0)
    ]
    weights = [time_weight(None, candidates_of(query, plan, [], NOW)) for plan in plans]
    assert weights == pytest.approx([0.5, 0.5, 0.25, 0.0625])


def test_only_a_time_range_falls_back_to_the_indexing_time() -> None:
    created = {"created_at": NOW}
    week = {"from": iso_day(NOW // DAY_MS - 7), "to": iso_day(NOW // DAY_MS)}
    weight = {"weight": 0.5}
    ranged = read("caching", timeRange=week, temporal=weight)
    assert scored(
        ranged,
        candidate("new", **created),
        candidate("unknown"),
        candidate("old", created_at=0),
        candidate("dated", one_day(2011, 1, 1), **created),
    ) == {"new": 0.5, "unknown": 0.25, "old": 0.25, "dated": 0.25}
    said = read("caching past 7 days", temporal=weight)
    assert scored(said, candidate("new", **created)) == {"new": 0.25}


def test_newest_of_equally_relevant_comes_first() -> None:
    spring, summer = one_day(2021, 3, 1), one_day(2021, 7, 1)
    for text, best in (("latest on caching", "summer"), ("oldest on caching", "spring")):
        query = read(text)
        found = scored(
            query,
            candidate("spring", spring, created_at=NOW),
            candidate("summer", summer, created_at=NOW),
            candidate("planned", one_day(2027, 1, 1), created_at=NOW),
            candidate("new", created_at=NOW),
            candidate("old", created_at=NOW - 9 * DAY_MS),
            candidate("far", summer, score=0.1, created_at=NOW),
        )
        assert (
            max(found, key=lambda name: found[name] if name in ("spring", "summer") else 0) == best
        )
        # Those without a date are put in order by when they were stored, a plan among them.
        assert (found["new"] > found["old"]) == (best == "summer")
        assert found["planned"] == found["new"]
        assert all(0 <= score <= 1 for score in found.values())
        assert found["far"] < 0.35
        assert query.explained["understood"]["order"] in ("newest", "oldest")


def test_undated_candidates_of_one_day_are_unchanged() -> None:
    items = [
        candidate(name, score=score, created_at=NOW) for name, score in (("a", 0.5), ("b", 0.4))
    ]
    assert scored(read("latest on caching"), *items) == pytest.approx({"a": 0.5, "b": 0.4})
    assert items[0].trace["order"]["gain"] == pytest.approx(0)


def test_candidates_stored_after_the_query_count_as_of_its_day() -> None:
    items = [candidate(name, created_at=NOW + days * DAY_MS) for name, days in (("a", 0), ("b", 9))]
    found = scored(read("latest on caching"), *items)
    assert found["b"] == found["a"]


def test_order_can_be_requested_or_disabled() -> None:
    dates = [candidate("a", one_day(2020, 1, 1)), candidate("b", one_day(2021, 1, 1))]
    asked = scored(read("caching", temporal={"order": "oldest"}), *dates)
    assert asked["a"] > asked["b"]
    for options in ({"temporal": {"weight": 0.0}}, {"understand": False}):
        plain = [candidate(item.chunk_id, one_day(2020, 1, 1)) for item in dates]
        assert set(scored(read("latest on caching", **options), *plain).values()) == {0.5}
        assert plain[0].trace == {}


columns = st.fixed_dictionaries(
    {
        "excluded0": st.none() | st.floats(-1, 1),
        "excluded0Words": st.none() | st.floats(0, 50),
        "created_at": st.none() | st.integers(0, 2 * NOW),
    }
)
days = st.integers(-5000, 30000)
items = st.lists(
    st.tuples(
        st.floats(0, 1), st.lists(st.tuples(days, st.integers(0, 4000)), max_size=3), columns
    ),
    max_size=8,
)


@given(
    items, st.sampled_from(["caching in 2021 besides Redis", "latest since May 2020, not Redis"])
)
def test_scores_stay_within_bounds(
    found: list[tuple[float, list[tuple[int, int]], dict[str, Any]]], text: str
) -> None:
    query = read(text, timeRange={"from": iso_day(10000)}, exclude=["Redis"])
    plan = structs.replace(PLAN, informative=1.0, products={"excluded0Words": TERMS})
    candidates = [
        candidate(
            str(n), *(Period(first, first + length) for first, length in spans), score=score, **own
        )
        for n, (score, spans, own) in enumerate(found)
    ]
    assert all(0 <= score <= 1 for score in scored(query, *candidates, plan=plan).values())


def test_stages_without_time_or_exclusion_do_nothing() -> None:
    query = read("caching")
    item = candidate("a", MARCH, excluded0=0.9, score=0.1 + 0.2)
    candidates = candidates_of(query, PLAN, [item], NOW)
    candidates.blocks = [[item]]
    for stage in (TIME_CLOSENESS, TIME_ORDER, EXCLUSION_PENALTY):
        values.apply(stage, candidates)
    assert (item.score, item.trace) == (0.1 + 0.2, {})
