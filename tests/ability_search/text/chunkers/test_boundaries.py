"""Boundaries of sentences and graphemes."""

from __future__ import annotations

import pytest

from ability_search.text.chunkers.boundaries import paragraphs as blank_line_spans
from ability_search.text.chunkers.boundaries import sentences


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
