"""Directories that take the place of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ability_search.errors import InvalidInput
from ability_search.extensions.artifacts import artifact_files as files
from ability_search.extensions.artifacts.artifact_files import replaced
from ability_search.extensions.artifacts.artifact_format import MANIFEST


def write(target: Path, text: str) -> None:
    with replaced(target) as new:
        (new / MANIFEST).write_text(text)


def read(target: Path) -> str:
    return (target / MANIFEST).read_text()


def test_a_directory_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "artifact"
    with replaced(target) as new:
        (new / MANIFEST).write_text("1")
        assert not target.exists()
    assert read(target) == "1"
    assert os.listdir(target.parent) == ["artifact"]


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "in two steps"])
def test_the_old_one_is_replaced_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    target = tmp_path / "artifact"
    write(target, "1")
    (target / "vectors.f32").write_bytes(b"old")
    write(target, "2")
    assert read(target) == "2"
    assert os.listdir(target) == [MANIFEST]
    assert os.listdir(tmp_path) == ["artifact"]


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is of Linux")
def test_two_directories_change_places(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert files._exchange(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == ["b"]
    assert not files._exchange(tmp_path / "a", tmp_path / "missing")


def test_a_failure_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    write(target, "1")
    with pytest.raises(ZeroDivisionError), replaced(target) as new:
        (new / MANIFEST).write_text("2")
        raise ZeroDivisionError
    assert read(target) == "1"
    assert os.listdir(tmp_path) == ["artifact"]


def test_a_failure_of_the_second_step_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "artifact"
    write(target, "1")
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    rename = Path.rename

    def failing(self: Path, other: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError("full")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="full"):
        write(target, "2")
    assert read(target) == "1"


KILLED = """
import os, signal, sys
from pathlib import Path
from ability_search.extensions.artifacts.artifact_files import replaced
with replaced(Path(sys.argv[1])) as new:
    (new / "chunks.jsonl").write_text("half")
    (new / "sub").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    write(target, "1")
    subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False, timeout=60)
    assert len(os.listdir(tmp_path)) == 2
    assert read(target) == "1"
    write(target, "2")
    assert read(target) == "2"
    assert os.listdir(target) == [MANIFEST]
    assert os.listdir(tmp_path) == ["artifact"]


def test_only_one_writes_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    with replaced(target) as new:
        (new / MANIFEST).write_text("1")
        with pytest.raises(InvalidInput, match="is being written by another process"):
            write(target, "2")
    assert read(target) == "1"


@pytest.mark.parametrize("names", [["README.md"], [MANIFEST, "notes.txt"], ["vectors.f32"]])
def test_what_is_no_artifact_is_not_replaced(tmp_path: Path, names: list[str]) -> None:
    target = tmp_path / "documents"
    target.mkdir()
    for name in names:
        (target / name).write_text("mine")
    with pytest.raises(InvalidInput, match="is not an artifact and will not be replaced"):
        write(target, "1")
    assert sorted(os.listdir(target)) == sorted(names)
    assert os.listdir(tmp_path) == ["documents"]


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="is not a directory"):
        write(tmp_path / "file", "1")


def test_an_empty_directory_may_be_replaced_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", "1")
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "real") == "1"
