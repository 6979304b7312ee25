"""Files as documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ability_search.documents import Document
from ability_search.files.file_documents import File, hashed, load, readings
from ability_search.files.isolated_reader import Extractor
from ability_search.files.selection import select, vanished
from ability_search.text.loaders import Bounds, Extracted


def test_a_file_that_vanished_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    chosen = select(tmp_path, tmp_path)
    assert not vanished(tmp_path / "a.md")
    (tmp_path / "a.md").unlink()
    assert vanished(tmp_path / "a.md")
    files, skipped = load(chosen, max_bytes=100)
    assert files == []
    assert [(item.path, item.reason) for item in skipped] == [("a.md", "No such file or directory")]


def read(root: Path, *, format: str | None = None) -> list[Document]:
    files, unread = load(select(root, root), max_bytes=100_000, format=format)
    assert unread == []
    with Extractor(Bounds(text=1000, unpacked=100_000), timeout=60) as extractor:
        found = [*readings(files, extractor, most=100, most_bytes=1000)]
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


def test_the_hash_depends_on_bytes_and_format(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<h1>One</h1>")
    chosen = select(tmp_path, tmp_path)
    (html,), _ = load(chosen, max_bytes=100)
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
    files, _ = load(select(tmp_path, tmp_path), max_bytes=2000)
    with Extractor(Bounds(text=1000, unpacked=1000), timeout=60) as extractor:
        found = [*readings(files, extractor, most=100, most_bytes=850)]
    assert [[each.source for each in reading.documents] for reading in found] == [
        ["0.md", "1.md"],
        ["2.md"],
        ["3.md", "4.md"],
    ]
    assert [each.path for reading in found for each in reading.skipped] == ["5.md"]


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
