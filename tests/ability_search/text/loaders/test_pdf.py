"""PDF files."""

from __future__ import annotations

import pytest
from tests.ability_search.text.loaders.samples import pdf

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, data: bytes, bounds: Bounds = BOUNDS) -> Extracted:
    return extract(name, data, format_of(name, data), bounds)


def test_a_form_feed_ends_each_page_of_a_pdf() -> None:
    found = read("a.pdf", pdf("First page\nsecond line", "", "Third page"))
    assert found.text == "First page\nsecond line\n\f\n\n\f\nThird page\n\f\n"
    assert (found.format, found.title) == ("text", "The Title")
    assert found.metadata == {"author": "Ada", "created": "2026-03-01", "pages": 3}


def test_a_corrupt_pdf_after_an_encrypted_one_is_not_reported_as_encrypted() -> None:
    with pytest.raises(Unreadable, match="password"):
        read("a.pdf", pdf("x", encrypted=True))
    with pytest.raises(Unreadable, match="corrupt"):
        read("a.pdf", pdf())
