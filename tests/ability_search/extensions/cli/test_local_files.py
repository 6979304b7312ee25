from __future__ import annotations

from pathlib import Path

import pytest

from ability_search.config.schema import Limits
from ability_search.errors import InvalidInput
from ability_search.extensions.cli.local_files import (
    collection_name,
    read_selections,
    select_paths,
    stored_root,
    sweepable,
)
from ability_search.extensions.formats.isolated_reader import IsolatedReader
from ability_search.files.selection import Selection
from ability_search.text.loaders import Bounds


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def write(*names: str, text: str = "Some words.") -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def read(chosen: list[Selection], limits: Limits) -> list[list[str]]:
    """The sources of the documents in each part."""
    bounds = Bounds(limits.document_bytes, limits.unpacked_bytes)
    with IsolatedReader(bounds, timeout=60) as extractor:
        found = [reading.documents for reading in read_selections(chosen, limits, extractor)]
    return [[each.source for each in documents] for documents in found if documents]


def test_sweeping_the_root_itself_is_refused(cwd: Path) -> None:
    write("a.md")
    with pytest.raises(InvalidInput, match="below the root"):
        sweepable(select_paths([Path()], cwd))


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("docs", "docs"),
        ("My Notes!", "My-Notes"),
        ("日本", "日本"),
        ("mu\u0308ller", "müller"),
        ("قائمة 1", "قائمة-1"),
        ("..x", "x"),
        ("a" * 99, "a" * 64),
    ],
)
def test_a_directory_names_its_collection(tmp_path: Path, directory: str, name: str) -> None:
    (tmp_path / directory).mkdir()
    assert collection_name(tmp_path / directory) == name
    (tmp_path / directory / "f.md").write_text("x")
    assert collection_name(tmp_path / directory / "f.md") == name


def test_a_directory_without_a_letter_in_its_name_needs_a_name(tmp_path: Path) -> None:
    (tmp_path / "!!").mkdir()
    with pytest.raises(InvalidInput, match="no collection can be named") as refused:
        collection_name(tmp_path / "!!")
    assert "-c files" in refused.value.hint


@pytest.mark.parametrize(
    ("stored", "root"),
    [
        (["work/d/a.md", "work/d/b.md", "other/x.md"], "."),
        (["d/a.md", "d/b.md", "y.md", "x.md"], "work"),
        (["a.md", "b.md"], "work/d"),
        (["d/a.md", "d/gone.md"], "work"),
        (["d/a.md", "d/gone.md", "d/gone-too.md"], None),
        (["e/c.md"], "work"),
        (["b.md", "x", "y"], None),
        ([], None),
    ],
)
def test_the_root_of_stored_sources_is_found_on_the_disk(
    cwd: Path, stored: list[str], root: str | None
) -> None:
    write("d/a.md", "d/b.md", "e/c.md")
    expected = None if root is None else (cwd.parent / root).resolve()
    assert stored_root(cwd / "d", stored) == expected
    assert stored_root(cwd / "d/b.md", stored) == expected


def test_paths_outside_the_working_directory_keep_the_name_of_their_directory(
    cwd: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    write(str(outside / "a.md"))
    (selection,) = select_paths([outside], None)
    assert read([selection], Limits()) == [["outside/a.md"]]
    with pytest.raises(InvalidInput, match="is outside"):
        select_paths([outside], Path("."))


def test_a_file_named_twice_is_sent_once(cwd: Path) -> None:
    write("d/a.md", "d/b.md")
    assert read(select_paths([Path("d/b.md"), Path("d")], None), Limits()) == [["d/b.md", "d/a.md"]]


def test_calls_are_bounded_by_bytes_and_by_documents(cwd: Path) -> None:
    write(*(f"d/{n}.md" for n in range(5)), text="x" * 400)
    limits = Limits(batch_bytes=2048, document_bytes=1024)
    assert [len(part) for part in read(select_paths([Path("d")], None), limits)] == [2, 2, 1]
    limits = Limits(batch_documents=3)
    assert [len(part) for part in read(select_paths([Path("d")], None), limits)] == [3, 2]


@pytest.mark.parametrize("paths", [("a", "b"), ("b", "a"), ("b/link.md", "a/x.md")])
def test_a_link_to_a_file_of_another_path_is_skipped(cwd: Path, paths: tuple[str, str]) -> None:
    write("a/x.md", "b/own.md")
    Path("b/link.md").symlink_to(cwd / "a/x.md")
    chosen = select_paths(list(map(Path, paths)), None)
    assert {file.name for selection in chosen for file in selection.files} - {"own.md"} == {"x.md"}
    if paths == ("a", "b"):
        [skipped] = chosen[1].skipped
        assert (skipped.path, skipped.stale) == ("b/link.md", True)
        assert skipped.reason.endswith("indexed as a/x.md")
