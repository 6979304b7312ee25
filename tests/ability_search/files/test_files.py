"""Files as documents, without a network."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ability_search.documents import Document
from ability_search.errors import ForbiddenPath, InvalidInput
from ability_search.files.file_documents import load, prints, readings
from ability_search.files.isolated_reader import Extractor
from ability_search.files.selection import allowed, parts, select, vanished
from ability_search.text.loaders import Bounds


def test_links_are_followed_before_the_root_is_checked(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for directory in (inside, outside):
        directory.mkdir()
        (directory / "a.md").write_text("a")
    (inside / "link").symlink_to(outside)
    assert allowed("a.md", [inside], base=inside) == (inside / "a.md", inside)
    for path in ("link/a.md", "../out/a.md", str(outside), "/"):
        with pytest.raises(ForbiddenPath):
            allowed(path, [inside], base=inside)
    assert allowed("link/a.md", [inside, outside], base=inside)[1] == outside
    with pytest.raises(InvalidInput, match="no such file"):
        allowed("b.md", [inside], base=inside)


def test_files_come_in_the_order_of_their_names_without_what_is_installed(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", "sub/c.md", ".git/x.md", "node_modules/y.md", "z.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    chosen = select(tmp_path, tmp_path)
    names = [file.relative_to(tmp_path).as_posix() for file in chosen.files]
    assert names == ["a.md", "b.md", "sub/c.md"]
    assert chosen.prefix == ""
    assert select(tmp_path / "sub", tmp_path).prefix == "sub/"


def test_a_directory_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.md").write_text("x")
    scan = os.scandir

    def guarded(path: str) -> object:
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    chosen = select(tmp_path, tmp_path)
    assert [file.name for file in chosen.files] == ["a.md"]
    assert [(item.path, item.reason) for item in chosen.skipped] == [
        ("closed", "Permission denied")
    ]


def test_parts_are_bounded_by_number_and_by_bytes(tmp_path: Path) -> None:
    for n, size in enumerate((10, 10, 500, 10, 10, 10)):
        (tmp_path / f"{n}.md").write_text("x" * size)
    chosen = select(tmp_path, tmp_path)
    sizes = [len(part.files) for part in parts(chosen, most=10, most_bytes=100)]
    assert sizes == [2, 1, 3]
    assert [len(part.files) for part in parts(chosen, most=4, most_bytes=10**6)] == [4, 2]


def test_a_file_that_vanishes_before_it_is_read_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    chosen = select(tmp_path, tmp_path)
    assert not vanished(tmp_path / "a.md")
    (tmp_path / "a.md").unlink()
    assert vanished(tmp_path / "a.md")
    loaded = load(chosen, max_bytes=100)
    assert loaded.files == []
    assert [(item.path, item.reason) for item in loaded.skipped] == [
        ("a.md", "No such file or directory")
    ]


def read(root: Path, *, format: str | None = None) -> list[Document]:
    loaded = load(select(root, root), max_bytes=100_000, format=format)
    assert loaded.skipped == []
    with Extractor(Bounds(text=1000, unpacked=100_000), timeout=60) as extractor:
        found = [*readings(loaded.files, extractor, most_bytes=1000)]
    assert [skipped for reading in found for skipped in reading.skipped] == []
    return [document for reading in found for document in reading.documents]


def test_code_is_known_by_its_suffix_and_a_given_format_wins(tmp_path: Path) -> None:
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


def test_what_the_file_is_called_wins_over_what_it_says_of_itself(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\npath: elsewhere\ntags: [x]\n---\ntext")
    (found,) = read(tmp_path)
    assert found.metadata == {"path": "a.md", "extension": "md", "tags": ["x"]}


def test_files_are_compared_by_their_bytes_and_format(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<h1>One</h1>")
    chosen = select(tmp_path, tmp_path)
    (html,) = load(chosen, max_bytes=100).files
    (found,) = prints(chosen, max_bytes=100).files
    assert found.hash == html.hash == found.document().file_hash == read(tmp_path)[0].file_hash
    assert found.document().unread
    assert not read(tmp_path)[0].unread
    changed = replace(html, data=html.data + b" ")
    other = replace(html, format="pdf")
    assert len({html.hash, changed.hash, other.hash}) == 3


def test_readings_are_bounded_by_the_text_that_is_read(tmp_path: Path) -> None:
    for n, size in enumerate((400, 400, 900, 10, 10, 1001)):
        (tmp_path / f"{n}.md").write_text("x" * size)
    files = load(select(tmp_path, tmp_path), max_bytes=2000).files
    with Extractor(Bounds(text=1000, unpacked=1000), timeout=60) as extractor:
        found = [*readings(files, extractor, most_bytes=850)]
    assert [[each.source for each in reading.documents] for reading in found] == [
        ["0.md", "1.md"],
        ["2.md"],
        ["3.md", "4.md"],
    ]
    assert [each.path for reading in found for each in reading.skipped] == ["5.md"]


def test_gitignore_files_are_followed_where_asked(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    for name in ("a.md", "b.log", "sub/c.log", "sub/keep.log", "sub/build/d.md", "out/e.md"):
        (repository / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / "docs" / name).write_text("x")
    (repository / ".git").mkdir()
    (repository / ".gitignore").write_text("*.log\n/docs/out/\n")
    (repository / "docs" / "sub" / ".gitignore").write_text("!keep.log\nbuild/\n")
    (tmp_path / ".gitignore").write_text("*.md\n")
    top = repository / "docs"

    def names(**options: Any) -> list[str]:
        chosen = select(top, tmp_path, exclude=[".gitignore"], **options)
        return [file.relative_to(top).as_posix() for file in chosen.files]

    assert names(gitignore=True) == ["a.md", "sub/keep.log"]
    assert len(names()) == 6


def test_a_gitignore_file_that_cannot_be_read_ignores_nothing(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    (tmp_path / "a.md").write_text("x")
    assert len(select(tmp_path, tmp_path, gitignore=True).files) == 1
