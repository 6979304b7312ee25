"""Files that are not what they seem: links, pipes, devices, and swaps while they are read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.ability_search.files.opened_files import load

from ability_search.errors import ForbiddenPath
from ability_search.files import file_documents
from ability_search.files.file_documents import hashed
from ability_search.files.regular_files import NotRegular, open_beneath, open_regular
from ability_search.files.selection import SECRET, allowed, select


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with ``sub/a.md``; a file outside lies beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_text("not yours")
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "sub" / "a.md").write_text("mine")
    return tmp_path / "root"


def to_link(root: Path) -> None:
    (root / "sub" / "a.md").unlink()
    (root / "sub" / "a.md").symlink_to(root.parent / "outside" / "a.md")


def to_fifo(root: Path) -> None:
    (root / "sub" / "a.md").unlink()
    os.mkfifo(root / "sub" / "a.md")


def to_directory(root: Path) -> None:
    (root / "sub" / "a.md").unlink()
    (root / "sub" / "a.md").mkdir()


def to_linked_directory(root: Path) -> None:
    (root / "sub").rename(root / "moved")
    (root / "sub").symlink_to(root.parent / "outside")


def to_device(root: Path) -> None:
    (root / "sub" / "a.md").unlink()
    (root / "sub" / "a.md").symlink_to("/dev/zero")


def to_socket(root: Path) -> None:
    (root / "sub" / "a.md").unlink()
    # The path of a socket is limited to about 100 bytes.
    with socket.socket(socket.AF_UNIX) as bound:
        before = Path.cwd()
        os.chdir(root / "sub")
        try:
            bound.bind("a.md")
        finally:
            os.chdir(before)


def to_secret_link(root: Path) -> None:
    (root / ".env").write_text("KEY=1")
    (root / "sub" / "a.md").unlink()
    (root / "sub" / "a.md").symlink_to(root / ".env")


def to_sparse(root: Path) -> None:
    with (root / "sub" / "a.md").open("wb") as file:
        file.truncate(1 << 40)


OUTSIDE = "a link leads outside the directory that may be read"
BEFORE: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (to_link, OUTSIDE),
    "FIFO": (to_fifo, "a FIFO, not a regular file"),
    "directory": (to_directory, "a directory, not a regular file"),
    "linked directory": (to_linked_directory, OUTSIDE),
    "device": (to_device, OUTSIDE),
    "socket": (to_socket, "a socket or device, not a regular file"),
    "link to a secret": (to_secret_link, SECRET),
    "sparse": (to_sparse, f"{1 << 40} bytes, more than the 1000 allowed (max_file_bytes)"),
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_file_replaced_after_its_selection_is_skipped(root: Path, name: str) -> None:
    replace, reason = BEFORE[name]
    chosen = select(root, root)
    assert [file.name for file in chosen.files] == ["a.md"]
    replace(root)
    files, skipped = load(chosen, max_bytes=1000)
    assert files == []
    assert [(each.path, each.reason) for each in skipped] == [("sub/a.md", reason)]
    assert hashed(chosen, max_bytes=1000) == ({}, skipped)


AFTER: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (to_link, "a link, not a regular file"),
    "FIFO": (to_fifo, "a FIFO, not a regular file"),
    "linked directory": (to_linked_directory, "its directory 'sub' was replaced by a link"),
    "device": (to_device, "a link, not a regular file"),
    "link to a secret": (to_secret_link, "a link, not a regular file"),
}


@pytest.mark.parametrize("name", AFTER)
def test_a_file_replaced_between_check_and_opening_is_skipped(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    replace, reason = AFTER[name]
    chosen = select(root, root)

    def replaced_first(within: Path, path: Path) -> BinaryIO:
        replace(root)
        return open_beneath(within, path)

    monkeypatch.setattr(file_documents, "open_beneath", replaced_first)
    files, skipped = load(chosen, max_bytes=1000)
    assert files == []
    assert [(each.path, each.reason) for each in skipped] == [("sub/a.md", reason)]


def test_a_file_that_grows_while_it_is_read_is_bounded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = select(root, root)
    fstat = os.fstat

    def grown_after(descriptor: int) -> os.stat_result:
        about = fstat(descriptor)
        (root / "sub" / "a.md").write_text("x" * 5000)
        return about

    monkeypatch.setattr(os, "fstat", grown_after)
    files, skipped = load(chosen, max_bytes=1000)
    assert files == []
    assert "more than the 1000 allowed" in skipped[0].reason


@pytest.mark.parametrize("above", [False, True])
def test_a_hard_link_to_a_secret_is_skipped(root: Path, above: bool) -> None:
    secret = root / ".env" if above else root / "sub" / "id_rsa"
    secret.write_text("KEY=1")
    (root / "sub" / "notes.md").hardlink_to(secret)
    (root / "sub" / "other.md").hardlink_to(root / "sub" / "a.md")
    files, skipped = load(select(root / "sub", root), max_bytes=1000)
    assert [file.source for file in files] == ["sub/a.md", "sub/other.md"]
    assert [(each.path, each.reason) for each in skipped] == [("sub/notes.md", SECRET)]
    alone, reasons = load(select(root / "sub" / "notes.md", root), max_bytes=1000)
    assert alone == []
    assert [each.reason for each in reasons] == ([SECRET])


def test_a_secret_is_not_read_behind_a_link_or_whatever_the_patterns_say(root: Path) -> None:
    (root / ".env").write_text("KEY=1")
    (root / "server.KEY").write_text("KEY=1")
    (root / "link.md").symlink_to(root / ".env")
    (root / ".gitignore").write_text(".env\n")
    chosen = select(root, root, exclude=["!.env", ".gitignore"])
    files, skipped = load(chosen, max_bytes=1000)
    assert [file.source for file in files] == ["sub/a.md"]
    skipped = [*chosen.skipped, *skipped]
    assert sorted(each.path for each in skipped) == [".env", "link.md", "server.KEY"]
    assert {each.reason for each in skipped} == {SECRET}


@pytest.mark.parametrize("path", [".env", "link.md", "sub/id_rsa", "named.pem"])
def test_a_direct_path_to_a_secret_is_refused(root: Path, path: str) -> None:
    (root / ".env").write_text("KEY=1")
    (root / "sub" / "id_rsa").write_text("KEY=1")
    (root / "link.md").symlink_to(root / ".env")
    (root / "named.pem").symlink_to(root / "sub" / "a.md")
    with pytest.raises(ForbiddenPath, match="path: may hold a key"):
        allowed(path, [root], base=root)


def test_a_file_is_read_once_whatever_links_lead_to_it(root: Path) -> None:
    (root / "left-out").mkdir()
    (root / "left-out" / "b.md").write_text("theirs")
    (root / "a-link.md").symlink_to(root / "sub" / "a.md")
    for name in ("first.md", "second.md"):
        (root / name).symlink_to(root / "left-out" / "b.md")
    chosen = select(root, root, exclude=["left-out/"])
    files, skipped = load(chosen, max_bytes=1000)
    assert [(file.source, file.data) for file in files] == [
        ("first.md", b"theirs"),
        ("sub/a.md", b"mine"),
    ]
    assert skipped == []
    assert [(each.path, each.reason, each.stale) for each in chosen.skipped] == [
        ("a-link.md", "a link to the file that is indexed as sub/a.md", True),
        ("second.md", "a link to the file that is indexed as first.md", True),
    ]


def test_pipes_of_a_directory_are_left_out_and_skipped_by_direct_path(root: Path) -> None:
    to_fifo(root)
    assert select(root, root).files == ()
    _, skipped = load(select(root / "sub" / "a.md", root), max_bytes=1000)
    assert [each.reason for each in skipped] == ["a FIFO, not a regular file"]


def test_a_pipe_in_place_of_a_gitignore_file_is_ignored(root: Path) -> None:
    os.mkfifo(root / ".gitignore")
    chosen = select(root, root, gitignore=True)
    assert [file.name for file in chosen.files] == ["a.md"]


def test_a_device_is_not_opened_as_a_file() -> None:
    with pytest.raises(NotRegular, match="a device, not a regular file"):
        open_regular(Path("/dev/null"))


def test_a_path_outside_the_directory_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="outside"):
        open_beneath(root, root.parent / "outside" / "a.md")
    with pytest.raises(NotRegular, match="directory 'sub' was replaced"):
        to_linked_directory(root)
        open_beneath(root, root / "sub" / "a.md")
