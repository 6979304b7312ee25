"""The stages of time and of exclusion, without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.collection import Collection
from ability_search.configuration.schema import Ranking
from ability_search.querying import exclusion, stages, temporal
from ability_search.querying.adjusting import Context, TimeSignal
from ability_search.querying.candidates import Plan, Pool, Search, pooled
from ability_search.querying.meaning import embedded_texts, explained, told, understood
from ability_search.querying.model import Candidate, Query
from ability_search.querying.options import Options, Temporal
from ability_search.querying.planning import planned
from ability_search.ranking.bm25 import QueryTerms
from ability_search.ranking.statistics import TermStatistics
from ability_search.statements import Predicate
from ability_search.understanding import Period
from ability_search.understanding.periods import months, one_day

DOCS = Collection("docs", "Chunk_docs_1", 1, "m", 1, "english", 10.0, "auto", 500, 0)
TERMS = QueryTerms((1,), (1.0,), 2.0)
DAY_MS = 86_400_000
NOW = (one_day(2026, 3, 25).first or 0) * DAY_MS
MARCH = months(2021, 3)
PLAN = Plan([Search("keyword", TERMS, 10)], depths=(10,), beam=10, scan_below=0)


def read(text: str, **options: Any) -> Query:
    return understood(Query(text, explain=True, options=Options(**options)), now=NOW)


def candidate(name: str, *periods: Period, score: float = 0.5, **columns: Any) -> Candidate:
    dates = [end for period in periods for end in (period.first, period.last)]
    found = Candidate(f"#{name}", name, 0.5, {"keyword": 1}, {"keyword": 1.0})
    found.columns = {"dates": dates, **columns}
    found.score = score
    return found


def scored(query: Query, *items: Candidate, plan: Plan = PLAN) -> dict[str, float]:
    time = temporal.time_signal(Pool(DOCS, list(items)), plan, query)
    context = Context(query, plan, Ranking(), NOW, time)
    for stage in stages.ADJUSTMENTS:
        stage.adjust(items, context)
    return {item.chunk_id: item.score for item in items}


def test_a_query_that_was_not_understood_is_its_own_topic() -> None:
    query = Query("caching in 2025 besides Redis")
    assert (query.topic, query.excluded, query.embedded_text) == (query.text, (), query.text)
    assert embedded_texts(query) == {"cosine": query.text}
    assert stages.columns(query) == []
    assert not temporal.wanted(query)
    assert told(query, None) is None
    assert explained(query, None) == {}


def test_what_is_embedded_stands_under_the_column_of_its_cosine() -> None:
    query = read("what was decided on caching besides Redis or disks after the outage")
    assert embedded_texts(query) == {
        "cosine": query.topic,
        "excluded0": "Redis",
        "excluded1": "disks",
        "event": "outage",
    }
    imagined = replace(query, hypothetical_answer="an answer")
    assert embedded_texts(imagined)["cosine"] == "an answer"


def test_only_what_is_needed_is_read_of_candidates() -> None:
    assert stages.columns(read("caching besides Redis")) == []
    assert stages.columns(read("caching in 2025")) == ["dates"]
    assert stages.columns(read("caching", period=MARCH)) == ["dates", "createdAt"]
    assert stages.columns(read("caching in 2025", temporal=Temporal(weight=0.0))) == []


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
def test_the_dated_search_is_by_what_the_mode_has(mode: Any) -> None:
    query = replace(read("caching in March 2021"), mode=mode, predicate=Predicate("x = :f0"))
    vectors = None if mode == "keyword" else {"cosine": [1.0]}
    plan = planned(
        query, vectors, TermStatistics.empty(), depth=5, language="english", ranking=Ranking()
    )
    dated = plan.searches[-1]
    assert (dated.name, dated.limit) == ("dated", 30)
    assert dated.by is (plan.vector if vectors else plan.terms)
    assert dated.predicate is not None
    assert dated.predicate.text == "facets CONTAINSANY :buckets AND (x = :f0)"
    assert dated.predicate.params["buckets"] == ["2021-02", "2021-03", "2021-04"]


def test_what_joins_is_known_by_the_score_of_its_own_search() -> None:
    row = {"rid": "#a", "chunkId": "a", "score": 0.7}
    (by_vector,) = pooled({"dated": [row]}, compared={"semantic", "dated"})
    assert (by_vector.cosine, by_vector.ranks) == (0.7, {"dated": 1})
    (by_terms,) = pooled({"dated": [row]}, compared=())
    assert (by_terms.cosine, by_terms.values) == (None, {"dated": 0.7})
    plan = replace(PLAN, searches=[*PLAN.searches, Search("dated", TERMS, 10)])
    pool = Pool(DOCS, [by_terms])
    (hit,) = stages.ranked(pool, Context(Query("words", mode="keyword"), plan, Ranking(), NOW))
    assert hit.score == pytest.approx(float(TERMS.normalized([0.7])[0]))


def test_closeness_is_a_share_of_the_score() -> None:
    query = read("caching in March 2021", temporal=Temporal(weight=0.25))
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


def test_the_more_the_words_tell_the_less_dates_count() -> None:
    query = read("caching in March 2021")
    weights = []
    for informative in (0.0, 0.5, 2.0, 10.0):
        signal = temporal.time_signal(Pool(DOCS, []), replace(PLAN, informative=informative), query)
        assert signal is not None
        weights.append(signal.weight)
    assert weights == pytest.approx([0.5, 0.5, 0.25, 0.0625])


def test_only_a_range_falls_back_to_when_a_chunk_was_indexed() -> None:
    created = {"createdAt": NOW}
    week = Period(NOW // DAY_MS - 7, NOW // DAY_MS)
    weight = Temporal(weight=0.5)
    ranged = read("caching", period=week, temporal=weight)
    assert scored(
        ranged,
        candidate("new", **created),
        candidate("unknown"),
        candidate("old", createdAt=0),
        candidate("dated", one_day(2011, 1, 1), **created),
    ) == {"new": 0.5, "unknown": 0.25, "old": 0.25, "dated": 0.25}
    said = read("caching past 7 days", temporal=weight)
    assert scored(said, candidate("new", **created)) == {"new": 0.25}


def test_any_date_answers_when_one_is_asked_for() -> None:
    query = read("when was the gateway moved")
    plan = replace(PLAN, informative=0.9)
    assert scored(
        query,
        candidate("day", one_day(2020, 5, 4)),
        candidate("month", months(2020, 5)),
        candidate("year", months(2020, 1, 12)),
        candidate("none"),
        plan=plan,
    ) == pytest.approx({"day": 0.625, "month": 0.625, "year": 0.375, "none": 0.375})
    assert told(query, TimeSignal(0.25, None)) is None


def event(name: str, cosine: float | None, *periods: Period, rank: int = 1) -> Candidate:
    found = candidate(name, *periods, event=cosine)
    found.ranks = {"semantic": rank}
    return found


def test_the_closest_dated_candidate_tells_when_an_event_was() -> None:
    query = read("what was decided before the outage")
    outage, other = one_day(2021, 3, 10), one_day(2019, 9, 9)
    pool = Pool(
        DOCS,
        [
            event("undated", 0.9),
            event("year", 0.8, months(2021, 1, 12)),
            event("b", 0.7, outage),
            event("c", 0.7, other),
            event("deep", 0.99, other, rank=11),
            event("unknown", None, other),
        ],
    )
    signal = temporal.time_signal(pool, PLAN, query)
    assert signal is not None
    end = (outage.first or 0) - 1
    assert signal.period is not None
    assert signal.period.last == end
    understood_so = told(query, signal)
    assert understood_so is not None
    assert understood_so.period == signal.period
    assert explained(query, signal)["understood"]["period"]["to"] == "2021-03-09"


def test_an_event_that_nobody_dates_counts_for_nothing() -> None:
    query = read("what was decided before the outage")
    for item in (event("far", 0.3, one_day(2021, 3, 10)), event("undated", 0.9)):
        assert temporal.time_signal(Pool(DOCS, [item]), PLAN, query) is None
        assert scored(query, item) == {item.chunk_id: 0.5}
    asked = read("when was it decided before the outage")
    signal = temporal.time_signal(Pool(DOCS, [event("undated", 0.9)]), PLAN, asked)
    assert signal == TimeSignal(0.5, None)


def test_excluded_words_and_meaning_push_down() -> None:
    query = read("caching besides Redis or disks")
    terms = QueryTerms((1,), (2.0,), 2.0)
    plan = replace(PLAN, products={"excluded0Words": terms, "excluded1Words": terms})
    assert scored(
        query,
        candidate("words", excluded0=0.1, excluded0Words=1.0, excluded1Words=0.5),
        candidate("often", excluded0=0.1, excluded0Words=9.0),
        candidate("meaning", excluded0=0.2, excluded1=0.9),
        candidate("neither", excluded0=0.5, excluded1=0.5),
        candidate("unknown", excluded0=None, excluded1=None, excluded0Words=None),
        candidate("low", score=0.1, excluded0=0.9, excluded0Words=2.0),
        plan=plan,
    ) == pytest.approx(
        {"words": 0.425, "often": 0.2, "meaning": 0.3, "neither": 0.5, "unknown": 0.5, "low": 0.0}
    )


def test_phrases_without_words_or_statistics_exclude_by_meaning_alone() -> None:
    query = read("caching", exclude=["the"])
    empty = replace(PLAN, products={"excluded0Words": QueryTerms((), (), 0.0)})
    for plan in (PLAN, empty):
        assert scored(query, candidate("a", excluded0=0.7), plan=plan) == {"a": pytest.approx(0.4)}


columns = st.fixed_dictionaries(
    {
        "excluded0": st.none() | st.floats(-1, 1),
        "excluded0Words": st.none() | st.floats(0, 50),
        "createdAt": st.none() | st.integers(0, 2 * NOW),
    }
)
days = st.integers(-5000, 30000)
items = st.lists(
    st.tuples(
        st.floats(0, 1), st.lists(st.tuples(days, st.integers(0, 4000)), max_size=3), columns
    ),
    max_size=8,
)


@given(items, st.sampled_from(["caching in 2021 besides Redis", "since May 2020, not Redis"]))
def test_scores_stay_within_bounds(
    found: list[tuple[float, list[tuple[int, int]], dict[str, Any]]], text: str
) -> None:
    query = read(text, period=Period(10000, None), exclude=["Redis"])
    plan = replace(PLAN, informative=1.0, products={"excluded0Words": TERMS})
    candidates = [
        candidate(
            str(n), *(Period(first, first + length) for first, length in spans), score=score, **own
        )
        for n, (score, spans, own) in enumerate(found)
    ]
    assert all(0 <= score <= 1 for score in scored(query, *candidates, plan=plan).values())


def test_without_either_the_stages_do_nothing() -> None:
    query = read("caching")
    item = candidate("a", MARCH, excluded0=0.9, score=0.1 + 0.2)
    temporal.count_dates([item], Context(query, PLAN, Ranking(), NOW))
    exclusion.push_down([item], Context(query, PLAN, Ranking(), NOW))
    assert (item.score, item.trace) == (0.1 + 0.2, {})
