"""Highlights: right offsets, merged places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ability_search.search.hit_rows import matches
from ability_search.text.analyzer import Analyzer

ENGLISH = Analyzer()


def marked(content: str, query: str, **options: int) -> list[str]:
    found = matches(content, ENGLISH.query_terms(query), ENGLISH, **options)
    return [content[start:end] for start, end in found]


def test_inflected_words_are_marked_where_they_stand() -> None:
    content = "The caches were warmed. Caching is hard."
    found = matches(content, ENGLISH.query_terms("how to cache"), ENGLISH)
    assert found == [(4, 10), (24, 31)]


def test_neighbouring_and_overlapping_places_are_one() -> None:
    assert marked("uses rate limiting, per rate", "rate limiting") == ["rate limiting", "rate"]
    assert marked("see ERR_4012 now", "ERR_4012") == ["ERR_4012"]
    assert marked("我们用数据库存储", "数据库") == ["数据库"]


def test_only_the_part_of_an_identifier_that_was_asked_for_is_marked() -> None:
    assert marked("call parse_header() first", "header") == ["header"]
    assert marked("https://grafana.internal/d/slo-overview", "overview") == ["overview"]


def test_offsets_hold_where_normalization_changes_lengths() -> None:
    assert marked("ｶﾞｯｺｳ and cafe\u0301 ﬁles", "café file") == ["cafe\u0301 ﬁles"]


def test_limit_and_nothing_to_mark() -> None:
    assert marked("a1 b2 a1, a1; a1", "a1", limit=2) == ["a1", "a1"]
    assert marked("text", "other") == []
    assert marked("", "other") == []
    assert marked("text", "?") == []


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_text_gives_disjoint_matches(content: str, query: str) -> None:
    terms = ENGLISH.query_terms(query) or ENGLISH.terms(content)[:3]
    found = matches(content, terms, ENGLISH)
    for earlier, later in zip(found, found[1:], strict=False):
        assert earlier[1] < later[0]
    assert bool(found) == bool({*terms} & {*ENGLISH.terms(content)})
