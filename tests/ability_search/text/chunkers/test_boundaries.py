"""Boundaries of sentences and graphemes."""

from __future__ import annotations

import pytest

from ability_search.text.chunkers.boundaries import is_grapheme_edge, sentences
from ability_search.text.chunkers.boundaries import paragraphs as blank_line_spans


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("Dr. Smith met J. Doe, e.g. at 3.14 p.m. today.", None),
        ("See fig. 3 and No. 5 of vol. 2. Next.", ["See fig. 3 and No. 5 of vol. 2. Next."]),
        (
            "Am 3. Oktober war z.B. Ruhe. Dann nicht.",
            ["Am 3. Oktober war z.B. Ruhe.", "Dann nicht."],
        ),
        ("Born in 1999. Died old.", ["Born in 1999.", "Died old."]),
        (
            "一つ目。二つ目！「三つ目。」四つ目？",
            ["一つ目。", "二つ目！", "「三つ目。」", "四つ目？"],
        ),
        ("Wait... what? Yes", ["Wait... what?", "Yes"]),
        ("v1.2.3 is out at example.com now", None),
        ("  ", []),
    ],
)
def test_sentences_end_with_closing_marks(text: str, expected: list[str] | None) -> None:
    found = [text[start:end] for start, end in sentences(text, 0, len(text))]
    assert found == ([text] if expected is None else expected)


def test_one_line_end_of_two_characters_is_no_blank_line() -> None:
    text = "one cat\r\ntwo cats\r\n\r\nthree cats"
    assert [text[start:end] for start, end in blank_line_spans(text, 0, len(text))] == [
        "one cat\r\ntwo cats",
        "three cats",
    ]


@pytest.mark.parametrize(
    "grapheme",
    [
        "\r\n",
        "e\u0301",
        "\u1100\u1161\u11a8",
        "\uac00\u11a8",
        "\ud83d\ude00",
        "\U0001f1e9\U0001f1ea",
        "\U0001f469\u200d\U0001f4bb",
        "\U0001f44d\U0001f3fd",
    ],
)
def test_a_grapheme_has_no_edge_within(grapheme: str) -> None:
    text = f"a{grapheme}{grapheme}b"
    edges = [place for place in range(len(text) + 1) if is_grapheme_edge(text, place, 0)]
    size = len(grapheme)
    assert edges == [0, 1, 1 + size, 1 + 2 * size, 2 + 2 * size]
