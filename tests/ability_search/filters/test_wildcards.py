"""Globs, LIKE patterns and substrings as regular expressions."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from ability_search.filters.wildcards import glob_regex, like_regex, substring_regex


def glob_matches(glob: str, text: str) -> bool:
    return re.fullmatch(glob_regex(glob)[0], text) is not None


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    [
        ("a.md", "a.md", True),
        ("a.md", "axmd", False),
        ("a.md", "A.md", False),
        ("*.md", "a.md", True),
        ("*.md", ".md", True),
        ("*.md", "dir/a.md", False),
        ("**.md", "dir/a.md", True),
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("docs/**/a.md", "docs/a.md", True),
        ("docs/**/a.md", "docs/x/y/a.md", True),
        ("docs/**/a.md", "docsx/a.md", False),
        ("docs/**", "docs/x/y", True),
        ("docs/**", "docs", False),
        ("**/**/a", "a", True),
        ("**a*c", "a/ac", True),
        ("**a*/b*c", "a/xa/a/bc", True),
        ("?.md", "a.md", True),
        ("?.md", "/.md", False),
        ("?", "😀", True),
        ("?", "\n", True),
        ("*", "a\nb", True),
        ("[a-c]", "b", True),
        ("[a-c]", "d", False),
        ("[!a-c]", "d", True),
        ("[!a-c]", "/", False),
        ("[+-9]", "/", False),
        ("[]-]", "]", True),
        ("[]-]", "-", True),
        ("[[]x[]]", "[x]", True),
        ("[*]", "*", True),
        ("[^a]", "^", True),
        ("[\\w]", "\\", True),
        ("[a&&b]", "&", True),
        ("C:\\docs\\*", "C:\\docs\\a", True),
        ("https://x.org/a?b=[[]1]&c=(d)", "https://x.org/axb=[1]&c=(d)", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_globs_match_paths(glob: str, text: str, expected: bool) -> None:
    assert glob_matches(glob, text) is expected


@pytest.mark.parametrize(
    ("glob", "problem"),
    [("a[b", "not closed"), ("[]", "not closed"), ("[!]", "not closed"), ("[z-a]", "reversed")],
)
def test_an_invalid_class_is_rejected_with_the_reason(glob: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        glob_regex(glob)


def like_matches(pattern: str, text: str) -> bool:
    return re.fullmatch(like_regex(pattern)[0], text) is not None


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%", "", True),
        ("a%", "a/b\nc", True),
        ("%c", "abc", True),
        ("%b%", "abc", True),
        ("a_c", "abc", True),
        ("a_c", "a😀c", True),
        ("a_c", "ac", False),
        ("abc", "ABC", False),
        ("100\\%", "100%", True),
        ("100\\%", "1000", False),
        ("a\\_b\\\\", "a_b\\", True),
        ("a.c", "abc", False),
        ("%ab%ab", "abxab", True),
        ("%ab%ab", "xab", False),
    ],
)
def test_like_patterns_match_strings(pattern: str, text: str, expected: bool) -> None:
    assert like_matches(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["a\\", "\\a"])
def test_like_rejects_an_escape_of_an_ordinary_character(pattern: str) -> None:
    with pytest.raises(ValueError, match="backslash"):
        like_regex(pattern)


@pytest.mark.parametrize(
    ("part", "text", "expected"),
    [
        ("eco", "École d'ECONOMIE", True),
        ("ÉCOLE", "une école", True),
        ("ΟΔΟΣ", "οδος", True),
        ("οδοσ", "ΟΔΟΣ", True),
        ("strasse", "straße", False),
        ("STRAẞE", "straße", True),
        ("k", "\u212a", True),
        ("𐐀", "x𐐨", True),
        ("a.c", "abc", False),
        ("[a]", "x[A]", True),
        ("", "", True),
        ("b\nc", "A\nB\nC", True),
    ],
)
def test_substrings_ignore_case_character_by_character(
    part: str, text: str, expected: bool
) -> None:
    assert (re.fullmatch(substring_regex(part), text) is not None) is expected


@pytest.mark.parametrize(
    ("glob", "prefix"),
    [("docs/*.md", "docs/"), ("a", "a"), ("*a", ""), ("a[b]c", "a"), ("a?", "a"), ("a/**/b", "a/")],
)
def test_the_prefix_is_the_text_before_the_first_wildcard(glob: str, prefix: str) -> None:
    assert glob_regex(glob)[1] == prefix


def tokens_of(glob: str) -> tuple[str, ...]:
    """Cut a glob without classes: ``**/`` at a directory, ``**``, ``*``, or one character."""
    return tuple(re.findall(r"(?:(?<=/)|(?<![\s\S]))\*{2,}/|\*{2,}|\*|[\s\S]", glob))


def reference(glob: str, text: str) -> bool:
    """Try everything: the definition of a glob, written down without any cleverness."""
    tokens = tokens_of(glob)

    @cache
    def rest(token: int, at: int) -> bool:
        if token == len(tokens):
            return at == len(text)
        sign = tokens[token]
        if sign.startswith("**") and sign.endswith("/"):
            ends = [at, *(end + 1 for end in range(at, len(text)) if text[end] == "/")]
        elif sign.startswith("**"):
            ends = list(range(at, len(text) + 1))
        elif sign == "*":
            stop = text.find("/", at)
            ends = list(range(at, (len(text) if stop < 0 else stop) + 1))
        else:
            fits = text[at : at + 1] == sign or (sign == "?" and text[at : at + 1] not in ("", "/"))
            ends = [at + 1] if fits else []
        return any(rest(token + 1, end) for end in ends)

    return rest(0, 0)


@settings(max_examples=examples(1500))
@given(
    glob=st.lists(st.sampled_from(["a", "b", "/", "?", "*", "**", "**/"]), max_size=9).map("".join),
    text=st.text(alphabet="ab/", max_size=14),
)
def test_the_leftmost_match_finds_every_match(glob: str, text: str) -> None:
    assert glob_matches(glob, text) is reference(glob, text)


@settings(max_examples=examples(500))
@given(pattern=st.text(alphabet="ab%_", max_size=8), text=st.text(alphabet="ab", max_size=10))
def test_like_is_a_glob_without_directories(pattern: str, text: str) -> None:
    as_glob = re.sub("%+", "**", pattern).replace("_", "?")
    assert like_matches(pattern, text) is reference(as_glob, text)


@pytest.mark.parametrize(
    "glob", ["*a*a*a*a*a*a*a*a*b", "**a**a**a**a**a**a**b", "**a*a*a*a*b**c", "**/a*a*a*/**/*a*b"]
)
def test_hostile_globs_take_linear_time(glob: str) -> None:
    # Exponential or cubic matching of this text would run into the timeout of the test.
    assert not glob_matches(glob, "a" * 20_000)
    assert not glob_matches(glob, "aa/" * 7_000)
