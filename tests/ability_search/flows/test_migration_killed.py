"""The command that migrates, and imports, killed at any moment and run again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start
from tests.ability_search.flows.legacy import source, write_legacy
from tests.ability_search.flows.stored import assert_consistent, chunks, collections, rows
from tests.ability_search.flows.test_artifacts_killed import SETTINGS, Command, index

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.timeout(240)]

SOURCES = 24


async def kinds_of_types(network: Network) -> dict[str, str]:
    types = await rows(network, "SELECT name, type FROM schema:types")
    return {row["name"]: row["type"] for row in types}


async def kept(network: Network) -> int:
    """Return the number of chunks of the earlier ability, in the type that has to have all.

    A command that was sent before the kill may still rename that type: then it is read again.
    """
    while True:
        kinds = await kinds_of_types(network)
        whole = "Chunk" if kinds.get("Chunk") == "document" else "LegacyChunk"
        (row,) = await rows(network, f"SELECT count(*) AS n FROM {whole}")
        if await kinds_of_types(network) == kinds:
            return int(row["n"])


async def test_a_migration_killed_at_any_moment_completes_when_run_again(
    start: Start, tmp_path: Path
) -> None:
    chance = random.Random(11)
    texts = {
        name: [(f"s{n}", f"{name} number {n}.", f"And more of {n}.") for n in range(SOURCES)]
        for name in ("docs", "notes")
    }
    old = [
        row
        for name, every in texts.items()
        for key, *parts in every
        for row in source(name, key, *parts)
    ]
    async with start(**SETTINGS) as network:
        command = Command(network, tmp_path)
        await write_legacy(network, old)
        wanted = ("migrate", "--yes", "--model", MODEL)
        kills = 0
        for calls in (2, 3, chance.randint(6, 14)):
            kills += await command.killed("arcade-command", calls, *wanted)
            assert await kept(network) == len(old)
            listed = await rows(network, "SELECT FROM schema:types WHERE name = 'Collection'")
            if listed:
                for each in await rows(
                    network, "SELECT fields FROM Collection WHERE key IN ['docs', 'notes']"
                ):
                    assert each["fields"]["chunks"] == 2 * SOURCES
        assert kills == 3
        assert await command.run(*wanted) == 0
        for name, every in texts.items():
            assert (await assert_consistent(network, name)).sources == SOURCES
            held = [row["content"] for row in await chunks(network, name)]
            assert sorted(held) == sorted(part for _, *parts in every for part in parts)
        assert await kept(network) == len(old)
        assert await command.run("migrate", "--drop-old", "--yes", "--model", MODEL) == 0
        kinds = await rows(network, "SELECT FROM schema:types WHERE name = 'LegacyChunk'")
        assert kinds == []
        assert await collections(network) == ["docs", "notes"]


async def test_an_import_goes_on_where_it_was_killed(start: Start, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    async with start(**SETTINGS) as network:
        command = Command(network, tmp_path)
        await index(network, tmp_path, "Some")
        assert await command.run("export", "docs", out) == 0
        stored: list[str] = []

        def note(_tool: str, given: Mapping[str, Any]) -> None:
            stored.extend(record["source"] for record in given.get("params", {}).get("records", ()))

        network.faults.append(note)
        for _ in range(2):
            assert await command.killed("arcade-command", 5, "import", out, "--name", "copy")
        begun = len(stored)
        assert 0 < begun < 40
        assert await command.run("import", out, "--name", "copy") == 0
        assert (await assert_consistent(network, "copy")).sources == 40
        # Only what was on its way when it was killed may have been sent twice.
        assert len(stored) - len(set(stored)) <= 2 * 4
        assert set(stored) == {f"d{n}" for n in range(40)}
