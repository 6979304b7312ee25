"""Extraction of text from files of any format, and its failures."""

from __future__ import annotations

import io
import sys
import zipfile

import pytest
from tests.ability_search.text.loaders.samples import pdf, slides, word, workbook

from ability_search.text import loaders
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, content: str | bytes, bounds: Bounds = BOUNDS) -> Extracted:
    data = content.encode() if isinstance(content, str) else content
    return extract(name, data, format_of(name, data), bounds)


def bomb(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", b"<Types/>")
        archive.writestr(name, b" " * (20 << 20))
    return buffer.getvalue()


def declared_encrypted(data: bytes) -> bytes:
    """The archive with the bit set that says that its first member is encrypted."""
    place = data.index(b"PK\x01\x02") + 8
    return data[:place] + bytes([data[place] | 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", pdf("secret", encrypted=True), "needs a password"),
        ("a.pdf", pdf(), "corrupt"),
        ("a.pdf", pdf(""), "no text in it"),
        ("a.pdf", pdf("cut off")[:150], "corrupt"),
        ("a.docx", word("cut off")[:5000], "corrupt"),
        ("a.docx", workbook(A=[["x"]]), "corrupt, or not what its name says"),
        ("a.xlsx", word("x"), "corrupt, or not what its name says"),
        ("a.pptx", slides("x").replace(b"ppt/", b"xxx/"), "corrupt"),
        ("a.docx", bomb("word/document.xml"), "max_unpacked_bytes"),
        ("a.xlsx", bomb("xl/workbook.xml"), "max_unpacked_bytes"),
        ("a.docx", declared_encrypted(word("x")), "needs a password"),
        ("a.html", b" ", "empty"),
        ("a.html", b"<script>1</script>", "empty"),
    ],
)
def test_unreadable_documents_are_rejected_with_the_reason(
    name: str, data: bytes, reason: str
) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(name, data)


def test_lack_of_memory_is_not_reported_as_a_corrupt_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object) -> Extracted:
        raise MemoryError

    monkeypatch.setattr(loaders, "function", lambda _: starved)
    with pytest.raises(Unreadable, match="memory"):
        read("a.docx", word("x"))


def test_a_defect_in_a_loader_is_not_reported_as_a_corrupt_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> Extracted:
        raise KeyError("defect")

    monkeypatch.setattr(loaders, "function", lambda _: broken)
    with pytest.raises(KeyError, match="defect"):
        read("a.md", b"x")


@pytest.mark.parametrize(
    ("library", "name", "data"),
    [
        ("pypdfium2", "a.pdf", pdf("x")),
        ("lxml.etree", "a.docx", word("x")),
        ("pptx", "a.pptx", slides("x")),
        ("python_calamine", "a.xlsx", workbook(A=[["x"]])),
        ("lxml.etree", "a.html", b"<p>x"),
    ],
)
def test_a_missing_library_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, library: str, name: str, data: bytes
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unreadable, match=r"pip install 'ability-search\[documents\]'"):
        read(name, data)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n0", "an image; .* tesseract"),
        ("README", b"\x7fELF\2\1\1", "a program"),
        ("a.md", b"\x1f\x8b\x08", "a gzip archive"),
        ("a.txt", b"%PDF-1.7\n", "a PDF file, not text"),
        ("a.zip", b"PK\x03\x04....", "a ZIP archive"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "before 2007"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "encrypted"),
        ("a.pdf", b"plain words", "not a PDF file, though its name says so"),
        ("a.xlsx", b"", "empty"),
        ("a.md", b" \n", "empty"),
        ("a.ipynb", b"[1, 2", "not a notebook"),
        ("a.ipynb", b'{"a": 1}', "not a notebook"),
        ("a.ipynb", b'{"cells": []}', "empty"),
    ],
)
def test_unreadable_text_files_are_rejected_with_the_reason(
    name: str, data: bytes, reason: str
) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(name, data)


def test_more_text_than_allowed_is_rejected() -> None:
    with pytest.raises(Unreadable, match="max_document_bytes"):
        read("a.md", "ä" * 60, Bounds(text=100, unpacked=100))


def test_form_feeds_end_pages_in_every_format() -> None:
    text = "# One\n\nfirst page\n\f\n## Two\n\nsecond page\n\f\n"
    for format in ("markdown", "text", "rst", None):
        passages = chunk(text, format=format)
        assert passages
        assert not any("\f" in each.content or each.content.isspace() for each in passages)
        assert "".join("".join(p.content for p in passages).split()) == "".join(text.split())
