from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.cli.test_cli_indexing import answered, write

from ability_search.errors import SearchError
from ability_search.extensions.cli.clients import new_client
from ability_search.extensions.cli.extras import install_command
from ability_search.extensions.cli.local_files import Root, find_place, select_paths
from ability_search.extensions.watch import watcher
from ability_search.extensions.watch.watcher import EDITORS, Watcher, WatchLog, changes_of
from ability_search.files.selection import Selection
from kadi_client import ToolError

SECONDS = 30.0


def at(name: str) -> Path:
    """A path in the working directory, as events name it."""
    return Path.cwd() / name


class Watched:
    """A watcher over ``d``, and what the network was asked since the last look."""

    def __init__(self, watcher: Watcher, network: Any) -> None:
        self._watcher = watcher
        self._network = network

    async def look(self, *named: str) -> tuple[list[str], list[str]]:
        """Tell of changes; the sources that were sent, and those that were deleted."""
        self._network.asked.clear()
        await self._watcher.follow(burst({at(name) for name in named}))
        sent = self._network.inputs("search-index")
        deleted = self._network.inputs("search-delete")
        return [d["source"] for call in sent for d in call["documents"] if d["content"]], [
            source for call in deleted for source in call["sources"]
        ]


async def burst(*named: set[Path]) -> AsyncIterator[set[Path]]:
    for each in named:
        yield each


def find(roots: Sequence[Root]) -> list[Selection]:
    return select_paths([Path("d")], roots, temporary=EDITORS, gitignore=True)


@asynccontextmanager
async def watching_d(network: Any) -> AsyncIterator[Watched]:
    async with new_client(network.url) as client:
        locate = partial(find_place, paths=[Path("d")], collection="c", root=None)
        report = WatchLog(as_json=True)
        yield Watched(Watcher(client, locate, find, {}, SECONDS, report), network)


@pytest.fixture
def ready(network: Any, run: Any) -> Any:
    """A network that takes everything, and an empty directory ``d``."""
    network.answers["search-index"] = answered
    network.answers["search-collection-info"] = lambda _: {"sources": ["d/a.md", "d/old.md"]}
    network.answers["search-delete"] = lambda _: {"deleted": 1}
    at("d").mkdir()
    return network


async def test_it_begins_with_everything_and_a_sweep(ready: Any) -> None:
    write("d/a.md", "d/sub/b.md")
    async with watching_d(ready) as watched:
        assert await watched.look() == (["d/a.md", "d/sub/b.md"], ["d/old.md"])
        assert await watched.look() == ([], [])


async def test_only_what_changed_is_sent_and_what_vanished_deleted(ready: Any) -> None:
    write("d/a.md", "d/b.md", "d/c.md")
    async with watching_d(ready) as watched:
        await watched.look()
        write("d/a.md", text="other words")
        write("d/new.md")
        at("d/c.md").unlink()
        assert await watched.look("d/a.md") == (["d/a.md", "d/new.md"], ["d/c.md"])


async def test_a_renamed_directory_moves_all_its_files(ready: Any) -> None:
    write("d/one/a.md", "d/one/deep/b.md")
    async with watching_d(ready) as watched:
        await watched.look()
        at("d/one").rename("d/two")
        sent, deleted = await watched.look("d/two")
        assert sent == ["d/two/a.md", "d/two/deep/b.md"]
        assert deleted == ["d/one/a.md", "d/one/deep/b.md"]


async def test_a_file_that_looks_as_before_is_sent_if_an_event_names_it(ready: Any) -> None:
    write("d/a.md", text="one")
    about = at("d/a.md").stat()
    async with watching_d(ready) as watched:
        await watched.look()
        at("d/a.md").write_text("two")
        os.utime("d/a.md", ns=(about.st_atime_ns, about.st_mtime_ns))
        assert await watched.look("d/other.md") == ([], [])
        assert await watched.look("d/a.md") == (["d/a.md"], [])


async def test_files_of_editors_and_ignored_ones_are_left_out(ready: Any) -> None:
    write("d/a.md", "d/a.md~", "d/.a.md.swp", "d/#a.md#", "d/x.tmp", "d/build/out.md", "d/keep.log")
    at("d/.gitignore").write_text("build/\n*.log\n!keep.log\n.gitignore\n")
    at("d/.#a.md").symlink_to("nowhere")
    async with watching_d(ready) as watched:
        assert (await watched.look())[0] == ["d/a.md", "d/keep.log"]
        at("d/.gitignore").write_text("*.log\nbuild/\n.gitignore\n")
        # What is left out from now on is deleted, although its file exists.
        assert await watched.look("d/.gitignore") == ([], ["d/keep.log"])
        at("d/.gitignore").write_text("build/\n.gitignore\n")
        assert await watched.look("d/.gitignore") == (["d/keep.log"], [])
        # Not most of a directory, nor what cannot be read.
        at("d/.gitignore").write_text("*")
        assert await watched.look("d/.gitignore") == ([], [])
        at("d/keep.log").unlink()
        assert await watched.look("d/keep.log") == ([], ["d/keep.log"])


async def test_what_became_excluded_while_nobody_watched_is_deleted(ready: Any) -> None:
    ready.answers["search-collection-info"] = lambda _: {"sources": ["d/a.md", "d/b.md", "d/c.md"]}
    write("d/a.md", "d/b.md", "d/c.md")
    at("d/.gitignore").write_text("b.md\n.gitignore\n")
    async with watching_d(ready) as watched:
        assert await watched.look() == (["d/a.md", "d/c.md"], ["d/b.md"])


async def test_a_failure_that_passes_is_tried_again_and_loses_nothing(
    ready: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = {"success": False, "error": "busy", "code": "busy", "retryable": True}
    write("d/a.md")
    async with watching_d(ready) as watched:
        await watched.look()
        ready.answers["search-index"] = lambda _: busy
        write("d/b.md")
        assert (await watched.look("d/b.md"))[0] == []
        assert len(ready.inputs("search-index")) == 1
        ready.answers["search-index"] = answered
        assert (await watched.look())[0] == [], "it has to wait first"
        watched._watcher._not_before = 0.0
        assert (await watched.look())[0] == ["d/b.md"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("error") for line in lines] == [None, "busy", None]
    assert [line.get("added") for line in lines] == [1, None, 1]


async def test_pauses_grow_up_to_a_limit(ready: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ready.answers["search-index"] = lambda _: {"success": False, "error": "x", "retryable": True}
    write("d/a.md")
    async with watching_d(ready) as watched:
        for _ in range(7):
            watched._watcher._not_before = 0.0
            await watched.look()
    pauses = [json.loads(line)["retryInSeconds"] for line in capsys.readouterr().out.splitlines()]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


async def test_a_failure_that_does_not_pass_ends_it(ready: Any) -> None:
    mismatch = {"success": False, "error": "no", "code": "model_mismatch", "retryable": False}
    ready.answers["search-index"] = lambda _: mismatch
    write("d/a.md")
    async with watching_d(ready) as watched:
        with pytest.raises(ToolError, match="no"):
            await watched.look()


async def test_nothing_is_deleted_when_the_directory_itself_is_gone(ready: Any) -> None:
    write("d/a.md")
    async with watching_d(ready) as watched:
        await watched.look()
        shutil.rmtree("d")
        with pytest.raises(Exception, match="no such file or directory"):
            await watched.look("d")
        assert ready.inputs("search-delete") == []


async def test_changes_end_when_a_directory_is_replaced(tmp_path: Path) -> None:
    """An empty directory in its place may be that of a drive that is not mounted."""
    watched = tmp_path / "d"
    watched.mkdir()
    changes = changes_of([watched])
    async with asyncio.timeout(SECONDS):
        assert await anext(changes) == set()
        watched.rename(tmp_path / "away")
        assert [each async for each in changes if each] == []
        assert [each async for each in changes_of([watched])] == []
        changes = changes_of([tmp_path / "away"])
        assert await anext(changes) == set()
        (tmp_path / "away").rmdir()
        (tmp_path / "away").mkdir()
        async for _ in changes:
            pass


async def test_a_collection_that_is_not_there_yet_is_no_failure(ready: Any) -> None:
    missing = {"success": False, "error": "no such", "code": "not_found"}
    ready.answers["search-collection-info"] = lambda _: missing
    async with watching_d(ready) as watched:
        assert await watched.look() == ([], [])


async def test_changes_of_files_arrive_and_those_of_repositories_do_not(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    changes = changes_of([tmp_path])
    seen: set[Path] = set()
    async with asyncio.timeout(SECONDS):
        assert await anext(changes) == set()
        write(str(tmp_path / ".git" / "index"), str(tmp_path / "a.md"))
        while tmp_path / "a.md" not in seen:
            seen |= await anext(changes)
    await changes.aclose()
    assert seen == {tmp_path / "a.md"}


async def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(SearchError) as failed:
        await anext(changes_of([tmp_path]))
    assert install_command("watch") in failed.value.hint


def test_a_file_cannot_be_watched(run: Any, network: Any) -> None:
    write("a.md")
    done = run("watch", "a.md", broker=network.url)
    assert done.exit_code == 2
    assert "a.md: is not a directory" in done.stderr


Lines = Iterator[dict[str, Any]]


@pytest.fixture
def started(ready: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command in a process of its own, ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ability_search", "watch", *arguments]
        process = subprocess.Popen(
            [*command, "--broker", ready.url], stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_follows_until_it_is_told_to_stop(
    ready: Any, started: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    write("d/a.md")
    process = started("d", "--json", "--dedup-threshold", "0.9")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["added"], first["removed"]) == (1, 1)
    write("d/b.md")
    second = json.loads(process.stdout.readline())
    assert (second["collection"], second["added"], second["removed"]) == ("d", 1, 0)
    at("d/a.md").unlink()
    assert json.loads(process.stdout.readline())["removed"] == 1
    process.send_signal(number)
    assert process.wait(SECONDS) == 0
    assert process.stdout.read() == ""
    assert {sent["dedupThreshold"] for sent in ready.inputs("search-index")} == {0.9}


@pytest.mark.slow
def test_watching_the_root_itself_deletes_nothing_it_has_not_seen(
    ready: Any, started: Callable[..., subprocess.Popen[str]]
) -> None:
    write("d/a.md")
    process = started(".", "-c", "c", "--root", ".", "--json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["added"], first["removed"]) == (1, 0)
    assert "is the root of the sources: 1 sources without a file stay in c" in first["warnings"][0]
    assert ready.inputs("search-delete") == []


async def test_an_emptied_file_is_deleted(ready: Any) -> None:
    write("d/a.md", "d/b.md")
    async with watching_d(ready) as watched:
        await watched.look()
        at("d/b.md").write_text("\n")
        assert await watched.look("d/b.md") == ([], ["d/b.md"])


@pytest.mark.parametrize("junk", [(), ("d/.DS_Store",)])
async def test_a_directory_without_its_files_is_not_swept_at_the_start(
    ready: Any, capsys: pytest.CaptureFixture[str], junk: tuple[str, ...]
) -> None:
    write(*junk)
    async with watching_d(ready) as watched:
        assert await watched.look() == ([*junk], [])
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (
        "d/ lacks or excludes its files: 2 sources without a file stay in c" in line["warnings"][0]
    )


async def test_a_directory_that_is_empty_without_an_event_may_be_a_drive(
    ready: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write("d/a.md", "d/mnt/b.md", "d/mnt/c.md")
    async with watching_d(ready) as watched:
        await watched.look()
        for name in ("d/mnt/b.md", "d/mnt/c.md"):
            at(name).unlink()
        capsys.readouterr()
        for name in ("d/a.md", "d/a.md"):
            assert (await watched.look(name))[1] == []
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        (warning,) = [each for line in lines for each in line["warnings"]]
        assert "d/mnt/ lacks or excludes its files: 2 sources" in warning
        assert await watched.look("d/mnt/b.md", "d/mnt") == ([], ["d/mnt/b.md", "d/mnt/c.md"])


async def test_files_of_a_drive_that_is_no_longer_mounted_are_kept(
    ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("d/a.md")
    async with watching_d(ready) as watched:
        await watched.look()
        at("d/a.md").unlink()
        with monkeypatch.context() as unmounted:
            unmounted.setattr(watcher, "_device_of", lambda path: -1)
            assert await watched.look("d/a.md") == ([], [])
        assert await watched.look("d/a.md") == ([], ["d/a.md"])
