"""The names of files in collections: they depend neither on the command's directory nor its script.

The commands run against a real worker.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document
from tests.ability_search.flows.stored import collections
from typer.testing import CliRunner

from ability_search.extensions.cli.app import all_commands

TEXTS = {"notes/a.md": "alpha one", "notes/sub/b.md": "beta two", "notes/c.md": "gamma three"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TEXTS.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("SEARCH_DATA_DIR", str(tmp_path / "cli"))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


async def command(network: Network, *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    """Run a command; return its exit code, its JSON and its messages."""
    given = [*map(str, arguments), "--json", "--broker", network.url]
    done = await asyncio.to_thread(CliRunner().invoke, all_commands(), given)
    return done.exit_code, json.loads(done.stdout or "{}"), done.stderr


async def sources(network: Network, collection: str) -> list[str]:
    info = await network.call("search-collection-info", collection=collection)
    return list(info["sources"])


async def test_a_directory_is_stored_once_wherever_the_command_runs(
    network: Network, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, _ = await command(network, "index", "notes")
    assert (first["collection"], first["added"]) == ("notes", 3)
    for directory, path in (
        ("notes", "."),
        ("notes/sub", ".."),
        ("..", home / "notes"),
        ("..", "home/notes"),
    ):
        monkeypatch.chdir(home / directory)
        _, again, _ = await command(network, "index", path, "--sweep")
        assert (again["added"], again["unchanged"], again["removed"]) == (0, 3, 0)
        monkeypatch.chdir(home)
    monkeypatch.chdir(home / "notes")
    _, part, _ = await command(network, "index", "sub", "c.md", "-c", "notes")
    assert (part["added"], part["unchanged"]) == (0, 2)
    assert await sources(network, "notes") == sorted(TEXTS)
    assert await collections(network) == ["notes"]


async def test_a_collection_of_sources_without_the_directory_goes_on(
    network: Network, home: Path
) -> None:
    stored = [document(name.removeprefix("notes/"), text) for name, text in TEXTS.items()]
    await network.call("search-index", collection="notes", documents=stored)
    _, indexed, _ = await command(network, "index", "notes")
    assert (indexed["added"], indexed["updated"]) == (0, 3)
    (home / "notes/sub/new.md").write_text("delta four")
    _, indexed, _ = await command(network, "index", "notes/sub/new.md", "-c", "notes")
    assert indexed["added"] == 1
    assert await sources(network, "notes") == ["a.md", "c.md", "sub/b.md", "sub/new.md"]


async def test_another_directory_of_the_same_name_is_said(network: Network, home: Path) -> None:
    await command(network, "index", "notes")
    other = home / "elsewhere" / "notes"
    other.mkdir(parents=True)
    (other / "z.md").write_text("omega")
    _, indexed, _ = await command(network, "index", other)
    assert ["notes holds other documents too" in each for each in indexed["warnings"]] == [True]


@pytest.mark.slow
@pytest.mark.engine
async def test_letters_of_every_script_name_a_collection(network: Network, home: Path) -> None:
    for name in ("会议", "文档", "müller", "हिन्दी"):
        (home / name).mkdir()
        (home / name / "a.md").write_text(f"text of {name}")
        _, indexed, _ = await command(network, "index", name)
        assert indexed["collection"] == name
        found = await network.call("search-query", collection=name, query="text")
        assert [hit["source"] for hit in found["results"]] == [f"{name}/a.md"]
    assert len(await collections(network)) == 4


async def test_an_emptied_file_is_no_longer_found(network: Network, home: Path) -> None:
    (home / "notes/page.html").write_text("<p>epsilon</p>")
    await command(network, "index", "notes")
    (home / "notes/a.md").write_text(" \n\n")
    (home / "notes/c.md").write_bytes(b"")
    (home / "notes/page.html").write_text("<p> </p>")
    code, indexed, _ = await command(network, "index", "notes")
    assert (code, indexed["removed"], len(indexed["skipped"])) == (0, 3, 3)
    assert await sources(network, "notes") == ["notes/sub/b.md"]


async def test_documents_of_a_file_are_swept_only_with_the_file(
    network: Network, home: Path
) -> None:
    await command(network, "index", "notes")
    parts = [document(f"{name}/1", "A part.", of=name) for name in ("notes/a.md", "notes/c.md")]
    await network.call("search-index", collection="notes", documents=parts)
    (home / "notes/c.md").unlink()
    _, swept, _ = await command(network, "index", "notes", "--sweep")
    assert swept["removed"] == 1
    assert await sources(network, "notes") == ["notes/a.md", "notes/a.md/1", "notes/sub/b.md"]


async def test_what_is_excluded_now_is_named_and_swept(network: Network, home: Path) -> None:
    await command(network, "index", "notes")
    again = ("index", "notes", "--exclude", "sub/")
    _, kept, _ = await command(network, *again)
    (warning,) = kept["warnings"]
    assert "1 source in notes, such as 'notes/sub/b.md': excluded now" in warning
    (home / "notes/sub").chmod(0)  # by its name alone: it need not be readable
    _, swept, _ = await command(network, *again, "--sweep")
    assert (swept["removed"], swept["warnings"]) == (1, [])
    assert await sources(network, "notes") == ["notes/a.md", "notes/c.md"]
    # What include does not name is neither excluded nor deleted.
    _, other, _ = await command(network, "index", "notes", "--include", "a.md", "--sweep")
    assert other["removed"] == 0
    assert "'notes/c.md': not named by --include" in other["warnings"][0]
    (home / "notes/.gitignore").write_text("*.md\n")
    code, _, message = await command(network, "index", "notes", "--gitignore", "--sweep")
    assert (code, "notes lacks or excludes the files of 2 sources" in message) == (2, True)


@pytest.mark.parametrize("junk", [(), (".DS_Store", "desktop.ini")])
async def test_a_sweep_does_not_empty_a_collection_unasked(
    network: Network, home: Path, junk: tuple[str, ...]
) -> None:
    await command(network, "index", "notes")
    (home / "notes").rename(home / "aside")
    (home / "notes").mkdir()
    for name in junk:
        (home / "notes" / name).write_bytes(b"\0\0\0\1Bud1")
    code, _, message = await command(network, "index", "notes", "--sweep")
    assert code == 2
    assert (
        "notes lacks or excludes the files of 3 sources in notes, which would be deleted" in message
    )
    assert "--yes" in message
    assert len(await sources(network, "notes")) == 3
    code, indexed, _ = await command(network, "index", "notes", "--sweep", "--yes")
    assert (code, indexed["removed"]) == (0, 3)
    assert await sources(network, "notes") == []
