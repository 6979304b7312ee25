"""Highlights: right offsets, merged places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ability_search.text.analyzer import Analyzer
from ability_search.text.highlights import Highlight, highlights

ENGLISH = Analyzer()


def marked(content: str, query: str, **options: int) -> list[str]:
    found = highlights(content, ENGLISH.query_terms(query), ENGLISH, **options)
    assert all(content[each.start : each.end] == each.text for each in found)
    return [each.text for each in found]


def test_inflected_words_are_marked_where_they_stand() -> None:
    content = "The caches were warmed. Caching is hard."
    found = highlights(content, ENGLISH.query_terms("how to cache"), ENGLISH)
    assert found == [Highlight(4, 10, "caches"), Highlight(24, 31, "Caching")]


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
def test_any_text_gives_disjoint_highlights(content: str, query: str) -> None:
    terms = ENGLISH.query_terms(query) or ENGLISH.terms(content)[:3]
    found = highlights(content, terms, ENGLISH)
    for earlier, later in zip(found, found[1:], strict=False):
        assert earlier.end < later.start
    assert bool(found) == bool({*terms} & {*ENGLISH.terms(content)})
