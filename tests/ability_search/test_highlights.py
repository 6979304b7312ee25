"""Highlights and snippets: right offsets, merged places, the best window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ability_search.analysis import Analyzer
from ability_search.highlights import Highlight, highlights, snippet

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


def test_the_snippet_is_the_window_with_most_different_terms() -> None:
    filler = "lorem ipsum dolor sit amet " * 20
    content = f"{filler}cache cache cache {filler}the cache expires after a timeout {filler}"
    found = snippet(
        content, ENGLISH.query_terms("cache timeout expiry expires"), ENGLISH, length=80
    )
    assert "cache expires after a timeout" in found.text
    assert found.text == content[found.start : found.end]
    assert len(found.text) <= 80
    assert found.terms == 3
    assert content[found.start - 1] == content[found.end] == " "


def test_a_snippet_does_not_begin_with_spaces() -> None:
    content = "first words" + " " * 30 + "needle in the stack"
    assert snippet(content, ["needl"], ENGLISH, length=40).text == "needle in the stack"


def test_without_a_match_the_snippet_is_the_beginning() -> None:
    found = snippet("one two three four", ["zebra"], ENGLISH, length=9)
    assert (found.text, found.start, found.terms) == ("one two", 0, 0)
    assert snippet("", ["zebra"], ENGLISH).text == ""
    assert snippet("short", ["short"], ENGLISH).text == "short"


@given(st.text(max_size=300), st.text(max_size=40), st.integers(1, 120))
def test_any_text_gives_disjoint_highlights_and_a_snippet_within_length(
    content: str, query: str, length: int
) -> None:
    terms = ENGLISH.query_terms(query) or ENGLISH.terms(content)[:3]
    found = highlights(content, terms, ENGLISH)
    for earlier, later in zip(found, found[1:], strict=False):
        assert earlier.end < later.start
    best = snippet(content, terms, ENGLISH, length=length)
    assert best.text == content[best.start : best.end]
    assert len(best.text) <= length
    assert (best.terms > 0) == bool(found)
