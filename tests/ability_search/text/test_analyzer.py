"""Terms of texts and of queries."""

from __future__ import annotations

import concurrent.futures
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.errors import InvalidInput
from ability_search.text.analyzer import Analyzer, analyzer_for, languages

ENGLISH = Analyzer()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \n\t .,;!?() -- ___ ", []),
        ("Running runners run", ["run", "runner", "run"]),
        ("ERR_4012", ["err_4012", "err", "4012"]),
        ("foo_bar()", ["foo_bar", "foo", "bar"]),
        ("__init__", ["init"]),
        ("fooBarBaz", ["foobarbaz", "foo", "bar", "baz"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("JWTs and IDs", ["jwt", "and", "id"]),
        ("C++ C# F# .NET", ["c++", "c", "c#", "c", "f#", "f", ".net", "net"]),
        ("C++17", ["c++", "c", "17"]),
        ("ASP.NET", ["asp.net", "asp", "net"]),
        ("(.gitignore)", [".gitignore", "gitignor"]),
        ("node.js", ["node.js", "node", "js"]),
        ("a.b.c", ["a.b.c", "a", "b", "c"]),
        ("std::vector", ["std::vector", "std", "vector"]),
        ("AT&T x=1&y=2", ["at&t", "at", "t", "x", "1", "y", "2"]),
        ("src/kadi/wire.py", ["src/kadi/wire.py", "src", "kadi", "wire.py", "wire", "py"]),
        ("v0.96.0", ["v0.96.0", "v0", "v", "0", "96", "0"]),
        ("1,234,567", ["1234567", "1", "234", "567"]),
        ("1,2", ["1", "2"]),
        ("3.14", ["3.14", "3", "14"]),
        ("don't", ["dont", "don"]),
        ("the user's", ["the", "user"]),
        ("O'Brien's O\u2019Brien", ["obrien", "brien", "obrien", "brien"]),
        ("The end.Next", ["the", "end.next", "end", "next"]),
        ("the end.", ["the", "end"]),
        ("7d0bca77d6aae0a2", ["7d0bca77d6aae0a2"]),
        ("a\x00b\ud800c\u200bd\u0e3be", ["a", "b", "c", "d", "e"]),
        ("x" * 70 + "++", ["x" * 64, "x" * 6]),
        ("-".join("x" * 65), ["x"] * 65),
    ],
)
def test_terms_of_words_and_identifiers(text: str, terms: list[str]) -> None:
    assert ENGLISH.terms(text) == terms


PLAIN = Analyzer("none")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("猫", ["猫"]),
        ("数据库", ["数", "数据", "据", "据库", "库"]),
        ("𠮷野家", ["𠮷", "𠮷野", "野", "野家", "家"]),
        ("東京タワー", ["東", "東京", "京", "京た", "たわ", "わー"]),
        ("ｶﾞｯｺｳ", ["がっ", "っこ", "こう"]),
        ("검색을 차", ["검색", "색을", "차"]),
        (unicodedata.normalize("NFD", "검색"), ["검색"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("iPhone手机", ["iphone", "i", "phone", "手", "手机", "机"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("می\u200cخواهم", ["میخواهم"]),
        ("👍🏽 👩\u200d💻 🇩🇪🇫🇷", ["👍", "👩", "💻", "🇩🇪", "🇫🇷"]),
        ("│ ── ┐", []),
        ("5㎏ ½ ①", ["5", "kg", "1", "2", "1"]),
        ("ＥＲＲ＿４０１２", ["err_4012", "err", "4012"]),
        ("ﬁle x\u00ady", ["file", "xy"]),
    ],
)
def test_terms_of_other_scripts_and_symbols(text: str, terms: list[str]) -> None:
    assert PLAIN.terms(text) == terms


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("e-mail", "email"),
        ("UTF-8", "utf8"),
        ("2024-05-01", "20240501"),
        ("Straße", "STRASSE"),
        ("café", "cafe\u0301"),
        ("café", "cafe"),
        ("İstanbul", "istanbul"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("data-team@company.com", "DATA-TEAM@COMPANY.COM"),
        ("ネコ", "ねこ"),
        ("ﾗｰﾒﾝ", "らーめん"),
        ("ヴァ", "ゔぁ"),
        ("ヽヾ", "ゝゞ"),
    ],
)
def test_spellings_with_the_same_terms(left: str, right: str) -> None:
    assert ENGLISH.terms(left)[0] == ENGLISH.terms(right)[0]


def test_turkish_dotless_i_is_folded() -> None:
    turkish = Analyzer("turkish")
    assert turkish.terms("ILIK") == turkish.terms("ılık")
    assert turkish.terms("ILIK") != turkish.terms("ilik")
    assert turkish.terms("İZMİR") == turkish.terms("izmir")


def test_a_path_has_terms_for_itself_its_file_and_its_parts() -> None:
    document = set(ENGLISH.terms("see https://grafana.internal/d/slo-overview for details"))
    for query in ("grafana.internal", "slo-overview", "slo overview", "grafana"):
        assert set(ENGLISH.terms(query)) <= document | {"slooverview"}
        assert ENGLISH.terms(query)[0] in document


def test_stems_depend_on_the_language() -> None:
    assert Analyzer("German").terms("Häuser") == Analyzer("german").terms("Hauses") == ["haus"]
    assert PLAIN.terms("running") == ["running"]
    assert {"english", "german", "none", "russian"} <= set(languages())


@pytest.mark.parametrize("name", ["klingon", "", "en\u0000"])
def test_an_unknown_language_is_rejected_with_the_valid_ones(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        analyzer_for(name)
    assert caught.value.field == "language"
    assert "english" in caught.value.hint
    assert "none" in caught.value.hint


def test_stop_words_are_removed_from_queries_unless_nothing_else_is_left() -> None:
    assert ENGLISH.query_terms("how does the cache work") == ["cach", "work"]
    assert ENGLISH.query_terms("to be or not to be") == ENGLISH.terms("to be or not to be")
    assert ENGLISH.query_terms("who is in IT") == ["it"]
    assert ENGLISH.query_terms("WHAT IS IT FOR CACHES") == ["cach"]
    assert ENGLISH.query_terms("?!") == []
    assert ENGLISH.content_terms("to be or not to be") == ENGLISH.content_terms("的 是 在") == []
    assert Analyzer("german").query_terms("the") == ["the"]


@pytest.mark.parametrize("analyzer", [ENGLISH, PLAIN])
@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("密码怎么办", ["密", "密码", "码", "码怎", "办"]),
        ("什麼", ["什", "什麼", "麼"]),
        ("猫ですか", ["猫", "猫で"]),
        ("デスク", ["です", "すく"]),
        ("マスクです", ["ます", "すく", "くで"]),
        ("使用的书", ["使", "使用", "用", "用的", "的书", "书"]),
        ("的 是 在", ["的", "是", "在"]),
        ("猫 は", ["猫"]),
    ],
)
def test_function_words_are_removed_from_chinese_and_japanese_questions(
    analyzer: Analyzer, query: str, terms: list[str]
) -> None:
    assert analyzer.query_terms(query) == terms


@given(st.text(max_size=200))
def test_spans_of_terms_are_within_any_text(text: str) -> None:
    spans = list(ENGLISH.spans(text))
    assert [term for term, _, _ in spans] == ENGLISH.terms(text)
    for term, start, end in spans:
        assert term
        assert 0 <= start < end <= len(text)
    if any(char.isalnum() and char.isascii() for char in text):
        assert ENGLISH.terms(text)
        assert ENGLISH.query_terms(text)


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.text(max_size=60))
def test_terms_do_not_depend_on_text_beyond_a_space(left: str, right: str) -> None:
    assert ENGLISH.terms(f"{left} {right}") == ENGLISH.terms(left) + ENGLISH.terms(right)


def test_spans_are_offsets_in_the_original_text() -> None:
    text = "cafe\u0301 ﬁles ｶﾞｯ don't fooBar"
    found = {term: text[start:end] for term, start, end in ENGLISH.spans(text)}
    assert found["cafe"] == "cafe\u0301"
    assert found["file"] == "ﬁles"
    assert found["がっ"] == "ｶﾞｯ"
    assert found["dont"] == "don't"
    assert found["bar"] == "Bar"


@pytest.mark.slow
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a\u0301\u0323",
        "가\u0301\u0323",
        "漢",
        "a.",
        "a-",
        "aA",
        "①",
        "C++",
        "_",
        "1,111,",
        "ᄀ",
    ],
)
def test_a_long_text_of_one_pattern_is_analyzed_in_linear_time(unit: str) -> None:
    text = unit * (300_000 // len(unit))
    terms = ENGLISH.terms(text)
    assert len(terms) <= 2 * len(text)
    assert max(map(len, terms), default=0) <= 200


def test_an_analyzer_is_shared_between_threads() -> None:
    words = [f"{stem}{end}" for stem in ("index", "search", "rank") for end in ("ing", "ed", "s")]
    texts = [" ".join(f"{word}{n:c}" for word in words) for n in range(97, 123)]
    expected = [Analyzer().terms(text) for text in texts]
    shared = Analyzer()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(shared.terms, texts)) == expected
