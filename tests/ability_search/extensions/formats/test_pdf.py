"""PDF files."""

from __future__ import annotations

import pypdfium2
import pytest
from tests.ability_search.text.loaders.samples import pdf, saved, scan

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, data: bytes, bounds: Bounds = BOUNDS) -> Extracted:
    return extract(name, data, format_of(name, data), bounds)


def test_a_form_feed_ends_each_page_of_a_pdf() -> None:
    found = read("a.pdf", pdf("First page\nsecond line", "", "Third page"))
    assert found.text == "First page\nsecond line\n\f\n\n\f\nThird page\n\f\n"
    assert (found.format, found.title) == ("text", "The Title")
    assert found.metadata == {"author": "Ada", "created": "2026-03-01", "pages": 3}


@pytest.mark.parametrize(
    "annotation",
    [
        b"/Subtype /Widget /FT /Tx /T (name) /V (Ada Lovelace) /DA (/F1 12 Tf 0 g)",
        b"/Subtype /Widget /FT /Ch /T (name) /V (Ada Lovelace) /Opt [(Ada Lovelace)] /Ff 131072"
        b" /DA (/F1 12 Tf 0 g)",
    ],
)
def test_the_values_of_form_fields_are_read(annotation: bytes) -> None:
    field = b"/Rect [150 690 400 720] /F 4 /P 4 0 R /Type /Annot " + annotation
    form = b"/AcroForm << /Fields [99 0 R] /NeedAppearances true /DR << /Font << /F1 3 0 R >> >> >>"
    data = (
        pdf("Name:")
        .replace(b"/Type /Catalog", b"/Type /Catalog " + form)
        .replace(b"/Type /Page /", b"/Type /Page /Annots [99 0 R] /")
        .replace(b"xref\n0", b"99 0 obj\n<< " + field + b" >>\nendobj\nxref\n0", 1)
    )
    text = read("a.pdf", data).text
    assert "Name:" in text
    assert "Ada Lovelace" in text


def test_a_corrupt_pdf_after_an_encrypted_one_is_not_reported_as_encrypted() -> None:
    with pytest.raises(Unreadable, match="password"):
        read("a.pdf", pdf("x", encrypted=True))
    with pytest.raises(Unreadable, match="corrupt"):
        read("a.pdf", pdf())


def test_scanned_pages_are_named_and_the_others_read() -> None:
    mixed = pypdfium2.PdfDocument(scan("One", "", "Three", "Four"))
    mixed.import_pages(pypdfium2.PdfDocument(pdf("The walrus")))
    found = read("a.pdf", saved(mixed))
    assert found.text.split("\f")[4].strip() == "The walrus"
    assert [part for part, _ in found.unread] == ["page=1", "page=3-4"]
    assert all("apt install tesseract-ocr" in reason for _, reason in found.unread)


def test_a_pdf_of_scanned_pages_names_the_remedy() -> None:
    with pytest.raises(Unreadable, match="scanned; .* tesseract"):
        read("a.pdf", scan("One"))
