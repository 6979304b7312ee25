"""Files as documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ByteSize

from ability_search.config.schema import Limits
from ability_search.documents import Document
from ability_search.extensions.formats import ocr
from ability_search.extensions.formats.isolated_reader import IsolatedReader
from ability_search.files.file_documents import File, FileBatch, hashed, open_files, read_files
from ability_search.files.selection import Skipped, select, vanished
from ability_search.text.loaders import Bounds, Extracted


def test_a_file_that_vanished_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    chosen = select(tmp_path, tmp_path)
    assert not vanished(tmp_path / "a.md")
    (tmp_path / "a.md").unlink()
    assert vanished(tmp_path / "a.md")
    ((_, skipped),) = open_files(chosen, max_bytes=100)
    assert skipped == Skipped("a.md", "No such file or directory")


def test_images_are_skipped_before_they_are_compared_if_nothing_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    monkeypatch.setattr(ocr, "is_installed", lambda: False)
    documents, (skipped,) = hashed(select(tmp_path, tmp_path), max_bytes=100)
    assert not documents
    assert "tesseract" in skipped.reason


def readings(root: Path, *, format: str | None = None, most_bytes: int = 1000) -> list[FileBatch]:
    bounds = Bounds(text=1000, unpacked=100_000)
    limits = Limits(file_bytes=ByteSize(100_000))
    with IsolatedReader(bounds, timeout=60) as extractor:
        chosen = select(root, root)
        return [
            *read_files(chosen, extractor, limits, most=100, most_bytes=most_bytes, format=format)
        ]


def read(root: Path, *, format: str | None = None) -> list[Document]:
    found = readings(root, format=format)
    assert [skipped for reading in found for skipped in reading.skipped] == []
    return [document for reading in found for document in reading.documents]


def test_code_is_detected_by_suffix_unless_a_format_is_given(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x = 1")
    (found,) = read(tmp_path)
    assert (found.format, found.language, found.title, found.file) == (
        "code",
        "python",
        "x.py",
        True,
    )
    (forced,) = read(tmp_path, format="text")
    assert (forced.format, forced.language) == ("text", None)


def test_path_and_extension_replace_metadata_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\npath: elsewhere\ntags: [x]\n---\ntext")
    (found,) = read(tmp_path)
    assert found.metadata == {"path": "a.md", "extension": "md", "tags": ["x"]}


@pytest.mark.slow
def test_the_hash_depends_on_bytes_and_format(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<h1>One</h1>")
    chosen = select(tmp_path, tmp_path)
    ((_, html),) = open_files(chosen, max_bytes=100)
    assert isinstance(html, File)
    (found,) = hashed(chosen, max_bytes=100)[0].values()
    assert html.hash == found.file_hash == read(tmp_path)[0].file_hash
    assert found.unread
    assert not read(tmp_path)[0].unread
    changed = replace(html, data=html.data + b" ")
    other = replace(html, format="pdf")
    assert len({html.hash, changed.hash, other.hash}) == 3


def test_readings_are_bounded_by_the_size_of_the_text(tmp_path: Path) -> None:
    for n, size in enumerate((400, 400, 900, 10, 10, 1001)):
        (tmp_path / f"{n}.md").write_text("x" * size)
    found = readings(tmp_path, most_bytes=850)
    assert [[each.source for each in reading.documents] for reading in found] == [
        ["0.md", "1.md"],
        ["2.md"],
        ["3.md", "4.md"],
    ]
    assert [each.path for reading in found for each in reading.skipped] == ["5.md"]


def test_readings_are_bounded_by_the_number_and_the_size_of_the_files(tmp_path: Path) -> None:
    for n, size in enumerate((10, 10, 500, 10, 10)):
        (tmp_path / f"{n}.html").write_text("<!-- {} --><p>x</p>".format("." * size))
    found = readings(tmp_path, most_bytes=100)
    assert [len(reading.documents) for reading in found] == [2, 1, 2]


def test_a_file_is_read_again_if_time_ended_before_a_part_of_it() -> None:
    file = File("a.pdf", b"%PDF", "pdf")
    for reason, again in (
        ("no text recognised within 30 seconds (file_timeout)", True),
        ("an image that tesseract cannot read", False),
    ):
        found = Extracted("text", "text", unread=(("page=2", reason),))
        (document,), (skipped,) = file.documents(found)
        assert (document.file_hash != file.hash) == again
        assert skipped.reason == reason
        assert file.documents(found)[0] == [document]
        (more,), _ = file.documents(replace(found, text="text and more"))
        assert (more.file_hash != document.file_hash) == again
