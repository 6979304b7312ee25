"""Formats of files by name and content."""

from __future__ import annotations

import pytest

from ability_search.text.loaders import Bounds, Extracted, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, content: str | bytes, bounds: Bounds = BOUNDS) -> Extracted:
    data = content.encode() if isinstance(content, str) else content
    return extract(name, data, format_of(name, data), bounds)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.MD", ("markdown", None)),
        ("a.jsonl", ("json", None)),
        ("a.pyi", ("code", "python")),
        ("notes", (None, None)),
        ("a.unknown", (None, None)),
        ("a.rst", ("rst", None)),
    ],
)
def test_the_format_is_detected_by_suffix_and_content(
    name: str, expected: tuple[str | None, str | None]
) -> None:
    found = read(name, "words")
    assert (found.format, found.language, found.text) == (*expected, "words")


def test_text_that_mentions_pdf_is_text() -> None:
    assert read("a.md", "The first bytes are %PDF-1.7 in every file.").format == "markdown"
