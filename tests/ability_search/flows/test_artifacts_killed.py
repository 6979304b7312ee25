"""The commands that export and import, killed at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network, Start, document
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    record,
    services_of,
    settled,
)

from ability_search.extensions.artifacts.artifact_format import ChunksManifest
from ability_search.extensions.artifacts.artifact_reader import Artifact, read_manifest

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.timeout(240)]

SETTINGS = {
    "SEARCH_DATABASE_GRACE_PERIOD": "0",
    "SEARCH_DATABASE_WRITE_GROUP_CHUNKS": "4",
}


class Command:
    """A run of the command line in a process of its own."""

    def __init__(self, network: Network, home: Path) -> None:
        self._network = network
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "SEARCH_DATABASE": network.settings.database.name,
            **SETTINGS,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, *arguments: str) -> int:
        """Run it to its end; the exit code, negative if it was killed."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ability_search", *arguments, "--json"),
            *("--broker", self._network.url),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environ,
        )
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    async def killed(self, tool: str, calls: int, *arguments: str) -> bool:
        """Run it until it has called a tool so many times; false if it ended before."""
        left = [calls]

        def count(name: str, _given: Mapping[str, Any]) -> None:
            left[0] -= name == tool
            if left[0] == 0 and self._process is not None:
                self._process.send_signal(signal.SIGKILL)

        self._network.faults.append(count)
        try:
            return await self.run(*arguments) == -signal.SIGKILL
        finally:
            self._network.faults.remove(count)


async def index(network: Network, base: Path, text: str) -> None:
    documents = [document(f"d{n}", f"{text} number {n} of some.") for n in range(40)]
    await network.call("search-index", collection="docs", documents=documents)
    await settled(services_of(network, base), "docs")


def checked(directory: Path) -> ChunksManifest:
    manifest = read_manifest(directory)
    assert isinstance(manifest, ChunksManifest)
    Artifact(directory, manifest).check()
    return manifest


async def test_an_export_killed_at_any_moment_leaves_the_old_artifact(
    start: Start, tmp_path: Path
) -> None:
    chance = random.Random(8)
    out = tmp_path / "out"
    async with start(**SETTINGS) as network:
        command = Command(network, tmp_path)
        await index(network, tmp_path, "Old")
        assert await command.run("export", "docs", str(out)) == 0
        old = checked(out)
        await index(network, tmp_path, "New")
        kills = 0
        for _ in range(4):
            calls = chance.randint(1, 5)
            if await command.killed("arcade-query", calls, "export", "docs", str(out)):
                kills += 1
                assert checked(out) == old
        assert kills
        assert await command.run("export", "docs", str(out)) == 0
        assert checked(out).revision != old.revision
        assert sorted(name for name in os.listdir(tmp_path) if "out" in name) == ["out"]


async def test_an_import_killed_at_any_moment_leaves_what_there_was(
    start: Start, tmp_path: Path
) -> None:
    chance = random.Random(9)
    out = str(tmp_path / "out")
    async with start(**SETTINGS) as network:
        command = Command(network, tmp_path)
        await index(network, tmp_path, "Old")
        assert await command.run("export", "docs", out) == 0
        held = {row["chunkId"]: row["content"] for row in await chunks(network, "docs")}
        await index(network, tmp_path, "New")
        before = await record(network, "docs")
        kills = 0
        for name in ("copy", "docs", "other"):  # each once: another time would go on, and end
            replacing = ["--replace"] if name == "docs" else []
            calls = chance.randint(1, 12)
            wanted = ("import", out, "--name", name, *replacing)
            if not await command.killed("arcade-command", calls, *wanted):
                continue
            kills += 1
            listed = await network.call("search-collections")
            assert [item["name"] for item in listed["collections"]] == ["docs"]
            assert await record(network, "docs") == before
            found = await network.call("search-query", collection="docs", query="new number 7")
            assert found["results"][0]["content"].startswith("New")
        assert kills
        assert await command.run("import", out, "--name", "docs", "--replace") == 0
        await assert_consistent(network, "docs")
        assert {row["chunkId"]: row["content"] for row in await chunks(network, "docs")} == held
