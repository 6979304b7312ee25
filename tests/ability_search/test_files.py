"""Files as documents, without a network."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest

from ability_search.errors import ForbiddenPath, InvalidInput
from ability_search.files import allowed, decoded, parts, read, read_file, select, vanished


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe".encode(), "Größe"),
        (codecs.BOM_UTF8 + b"text", "text"),
        ("Größe".encode("utf-16"), "Größe"),
        (codecs.BOM_UTF16_BE + "Größe".encode("utf-16-be"), "Größe"),
        ("Größe".encode("utf-32"), "Größe"),
        (b"", ""),
    ],
)
def test_marked_and_plain_encodings_are_read(data: bytes, text: str) -> None:
    assert decoded(data) == text


@pytest.mark.parametrize("data", [b"a\0b", codecs.BOM_UTF16_LE + b"\0\xd8a", b"PK\3\4\0\0"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"binary|decode"):
        decoded(data)


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
    reading = read(chosen, max_bytes=100)
    assert reading.documents == []
    assert [(item.path, item.reason) for item in reading.skipped] == [
        ("a.md", "No such file or directory")
    ]


def test_code_is_known_by_its_suffix_and_a_given_format_wins(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("x = 1")
    found = read_file(file, "x.py", max_bytes=100)
    assert (found.format, found.language, found.title, found.file) == (
        "code",
        "python",
        "x.py",
        True,
    )
    forced = read_file(file, "x.py", max_bytes=100, format="text")
    assert (forced.format, forced.language) == ("text", None)
