"""BM25 weights and scores."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.text.term_arrays import term_ids

from ability_search.text import bm25
from ability_search.text.bm25 import (
    TITLE_COUNT,
    QueryTerms,
    counted_length,
    document_vector,
    inverse_document_frequency,
    joined,
    query_terms,
    reweighted,
    term_frequencies,
    terms_in_fields,
)
from ability_search.text.term_ids import CONTENT, CONTEXT, TITLE, term_id
from ability_search.text.term_statistics import TermStatistics

TEXTS = ["red fox", "red red dog", "the lazy brown dog sleeps", "fox fox fox", ""]


TITLES = ["fox", "", "dog", "", "red"]


def vectors(average: float, **options: float) -> list[dict[int, float]]:
    built = []
    for title, text in zip(TITLES, TEXTS, strict=True):
        ids, weights = document_vector(
            {TITLE: title.split(), CONTENT: text.split()}, average_length=average, **options
        )
        built.append(dict(zip(ids.tolist(), weights.tolist(), strict=True)))
    return built


def statistics() -> TermStatistics:
    titles, contents = ([len(each.split()) for each in texts] for texts in (TITLES, TEXTS))
    lengths = [
        (title, counted_length(title=title, content=content))
        for title, content in zip(titles, contents, strict=True)
    ]
    return TermStatistics.of_chunks([sorted(each) for each in vectors(5.0)], lengths)


def scores(query: QueryTerms, chunks: list[dict[int, float]]) -> list[float]:
    return [
        sum(w * chunk.get(i, 0.0) for i, w in zip(query.ids, query.weights, strict=True))
        for chunk in chunks
    ]


def test_scores_are_bm25_of_one_text_with_the_title_four_times() -> None:
    query = query_terms(["red", "fox", "unknown"], statistics())
    n, k1, b, average = 5, 1.2, 0.75, (13 + 3 * TITLE_COUNT) / 5
    assert statistics().average_length == average
    for title, text, score in zip(TITLES, TEXTS, scores(query, vectors(average)), strict=True):
        expected = 0.0
        for term in ("red", "fox"):
            df = max(
                sum(term in text.split() for text in TEXTS),
                sum(term in title.split() for title in TITLES),
            )
            idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
            words = text.split() + TITLE_COUNT * title.split()
            f, dl = words.count(term), len(words)
            expected += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * dl / average))
        assert score == pytest.approx(expected, rel=1e-5)


def test_ids_are_ascending_unique_and_of_both_fields() -> None:
    ids, weights = document_vector({TITLE: ["a"], CONTENT: ["b", "a", "b"]}, average_length=3)
    assert ids.dtype == np.int32
    assert weights.dtype == np.float32
    assert ids.tolist() == sorted(
        {term_id(CONTENT, "a"), term_id(CONTENT, "b"), term_id(TITLE, "a")}
    )
    assert ((weights > 0) & (weights <= 2.2)).all()


@pytest.mark.parametrize("fields", [{}, {CONTENT: []}, {TITLE: [], CONTENT: []}])
def test_no_terms_give_an_empty_vector(fields: dict[str, list[str]]) -> None:
    ids, weights = document_vector(fields, average_length=3)
    assert ids.shape == weights.shape == (0,)


def test_terms_with_the_same_id_keep_the_greater_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ability_search.text.bm25.term_id", lambda _field, _term: 7)
    ids, weights = document_vector({CONTENT: ["a", "b", "b"]}, average_length=3)
    assert ids.tolist() == [7]
    assert weights.tolist() == pytest.approx([2 * 2.2 / 3.2])


def test_without_an_average_every_content_is_of_average_length() -> None:
    _, weights = document_vector({CONTENT: ["a"] * 3}, average_length=0)
    assert weights.tolist() == pytest.approx([3 * 2.2 / 4.2])


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 400), min_size=1),
    st.floats(1, 3000),
    st.floats(0.5, 3),
    st.floats(0, 0.9),
)
def test_frequencies_are_recovered_from_rounded_weights(
    counts: dict[str, int], average: float, k1: float, b: float
) -> None:
    terms = list(Counter(counts).elements())
    ids, weights = document_vector({CONTENT: terms}, average_length=average, k1=k1, b=b)
    found = term_frequencies(
        [round(w, 5) for w in weights.tolist()],
        length=len(terms),
        average_length=average,
        k1=k1,
        b=b,
    )
    expected = {term_id(CONTENT, term): count for term, count in counts.items()}
    for identifier, frequency in zip(ids.tolist(), found.tolist(), strict=True):
        tolerance = 0.01 if expected[identifier] <= 100 else 0.15
        assert frequency == pytest.approx(expected[identifier], rel=tolerance)


def test_reweighting_equals_indexing_with_the_new_average() -> None:
    content = ["red"] * 7 + ["dog"] * 40 + ["cat"]
    fields = {TITLE: ["red", "fox", "fox"], CONTENT: content, CONTEXT: ["red", "owl"]}
    ids, old = document_vector(fields, average_length=20.0)
    _, new = document_vector(fields, average_length=90.0)
    stored = [round(weight, 5) for weight in old.tolist()]
    renewed = reweighted(ids.tolist(), stored, lengths=[3, 60], old_average=20.0, new_average=90.0)
    assert renewed == pytest.approx(new.tolist(), abs=1e-5)
    assert renewed != pytest.approx(stored, abs=1e-3)


def test_reweighting_nothing_or_saturated_weights_stays_finite() -> None:
    assert reweighted([], [], lengths=[0, 0], old_average=1, new_average=2) == []
    (weight,) = reweighted([5], [2.2], lengths=[0, 10**6], old_average=1e6, new_average=1e5)
    assert 2 < weight <= 2.2
    assert term_frequencies([1.0], length=3, average_length=3, k1=0.0).tolist() == [1.0]


def test_idf_is_positive_and_falls_with_frequency() -> None:
    idf = inverse_document_frequency([0, 1, 5, 10, 99], 10)
    assert (np.diff(idf[:4]) < 0).all()
    assert (idf > 0).all()
    assert idf[4] == idf[3]
    assert inverse_document_frequency([0], 0) == pytest.approx(math.log(2))


def test_a_long_query_keeps_its_most_informative_known_terms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bm25, "QUERY_TERMS_LIMIT", 2)
    terms = ["nowhere", "red", "dog", "lazy", "brown", "elsewhere"]
    query = query_terms(terms, statistics())
    assert query.ids == tuple(
        sorted(term_id(field, term) for field in (CONTENT, TITLE) for term in ("lazy", "brown"))
    )
    assert query.information == pytest.approx(2 * math.log(1 + 4.5 / 1.5))


def test_unknown_terms_count_as_missing_information() -> None:
    known = query_terms(["fox"], statistics())
    both = query_terms(["fox", "quasar"], statistics())
    assert set(both.ids) > set(known.ids)
    assert both.information > known.information
    assert both.normalized([1.0])[0] < known.normalized([1.0])[0]


def test_repeated_query_terms_count_each_time() -> None:
    once, often = (query_terms(["fox"] * n, statistics()) for n in (1, 3))
    assert often.weights[0] / once.weights[0] == pytest.approx(3.0)


def test_title_and_content_can_be_searched_by_themselves() -> None:
    for field, found in ((TITLE, TITLES), (CONTENT, TEXTS)):
        query = terms_in_fields(["fox"], statistics(), {field: 1.0})
        assert query.ids == (term_id(field, "fox"),)
        assert [s > 0 for s in scores(query, vectors(5.0))] == ["fox" in text for text in found]


def test_a_term_without_effect_in_the_title_is_still_found_there() -> None:
    ids, weights = document_vector({TITLE: ["a"], CONTENT: ["a"]}, average_length=3, k1=0.0)
    assert dict(zip(ids.tolist(), weights.tolist(), strict=True)) == {
        term_id(CONTENT, "a"): 1.0,
        term_id(TITLE, "a"): pytest.approx(1e-5),
    }


def test_only_the_given_fields_count_with_their_weights() -> None:
    ids, weights = document_vector(
        {"metadata.topic": ["fox"], CONTENT: ["fox"], "metadata.tags": ["fox"]}, average_length=1
    )
    chunk = dict(zip(ids.tolist(), weights.tolist(), strict=True))
    known = TermStatistics.of_chunks([ids, term_ids(CONTENT, ["dog"])], [(1, 1), (0, 1)])
    tags, both, none = (
        terms_in_fields(["fox"], known, fields)
        for fields in (
            {"metadata.tags": 1.0},
            {"metadata.tags": 1.0, "metadata.topic": 2.0},
            {"metadata.topic": 0.0},
        )
    )
    assert tags.ids == (term_id("metadata.tags", "fox"),)
    assert scores(both, [chunk]) == pytest.approx([3 * each for each in scores(tags, [chunk])])
    assert both.information == tags.information == pytest.approx(math.log(1 + 1.5 / 1.5))
    assert none == QueryTerms((), (), 0.0)


def test_a_common_word_is_not_rare_in_a_field_of_few_chunks() -> None:
    common = terms_in_fields(["red"], statistics(), {"metadata.tags": 1.0})
    rare = terms_in_fields(["lazy"], statistics(), {"metadata.tags": 1.0})
    assert common.information < rare.information


def test_an_empty_query_scores_nothing() -> None:
    query = query_terms([], statistics())
    assert query == QueryTerms((), (), 0.0)
    assert query.normalized([0.0, 3.0]).tolist() == [0.0, 0.0]


def test_terms_missing_from_the_statistics_are_searched() -> None:
    query = query_terms(["fox"], TermStatistics.empty())
    assert query.ids == tuple(sorted(term_id(field, "fox") for field in (CONTENT, TITLE)))
    assert query.information > 0


def test_normalized_scores_keep_order_and_stay_in_bounds() -> None:
    query = query_terms(["fox", "dog"], statistics())
    raw = [-1.0, 0.0, 0.5, query.information, 100.0, math.nan]
    normalized = query.normalized(raw)
    assert normalized.tolist()[:2] == [0.0, 0.0]
    assert (np.diff(normalized[1:5]) > 0).all()
    assert normalized[3] == pytest.approx(1 - 1 / math.e)
    assert normalized.max() <= 1
    assert normalized[5] == 0


positive = st.floats(0.01, 10)


def some_terms(weights: list[float], first: int) -> QueryTerms:
    return QueryTerms(tuple(range(first, first + len(weights))), tuple(weights), sum(weights))


weights_of_terms = st.just(0.0) | st.floats(1e-6, 1)


@given(st.lists(positive, max_size=5), st.lists(positive, max_size=30), weights_of_terms)
def test_expansion_terms_never_outweigh_the_query(
    own: list[float], further: list[float], weight: float
) -> None:
    query = some_terms(own, 100)
    all_ = joined(query, some_terms(further, 0), weight=weight)
    weights = dict(zip(all_.ids, all_.weights, strict=True))
    assert list(all_.ids) == sorted(weights)
    assert [weights[id_] for id_ in query.ids] == pytest.approx(own, rel=1e-6)
    share = sum(value for id_, value in weights.items() if id_ not in query.ids)
    assert share <= weight * query.information * (1 + 1e-6)
    assert all_.information == pytest.approx(query.information + share, rel=1e-6)


def test_few_expansion_terms_keep_the_given_weight() -> None:
    query, few = some_terms([4.0, 4.0], 100), some_terms([1.0, 2.0], 0)
    assert joined(query, few, weight=0.5) == QueryTerms((0, 1, 100, 101), (0.5, 1.0, 4.0, 4.0), 9.5)


def test_nothing_is_added_without_weight_terms_or_query() -> None:
    query, few, empty = some_terms([4.0], 100), some_terms([1.0], 0), some_terms([], 0)
    assert joined(query, few, weight=0.0) is query
    assert joined(query, empty, weight=1.0) is query
    assert joined(empty, few, weight=1.0) is empty
