"""Collections out to artifacts and back in, over the real broker and engine."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.artifacts.made import edited
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    collections,
    kind_chunks,
    links,
    record,
    services_of,
    settled,
    source_rows,
    types,
    uses,
)
from tests.ability_search.flows.test_file_identity import command

from ability_search.errors import DatabaseUnavailable, InvalidInput, NotFound
from ability_search.extensions.artifacts.artifact_format import ChunksManifest, Damaged
from ability_search.extensions.artifacts.artifact_reader import Artifact, read_manifest
from ability_search.extensions.artifacts.exporter import Exporter
from ability_search.extensions.artifacts.importer import Importer
from ability_search.extensions.sessions.uses import Use, put_use
from ability_search.store.values import Delete
from kadi_client import RemoteError

NO_GRACE = {"SEARCH_DATABASE_GRACE_PERIOD": "0"}
SMALL_GROUPS = NO_GRACE | {"SEARCH_DATABASE_WRITE_GROUP_CHUNKS": "20"}
WORDS = [
    first + last
    for first in ("am", "ba", "ce", "do", "fu")
    for last in ("ber", "sin", "tra", "lux")
]


async def unheard(*_progress: object) -> None:
    """Nobody listens."""


def prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words)).capitalize() + "."


def corpus() -> list[dict[str, Any]]:
    """Documents of every kind: long, repeated, linked, said of others, oddly named."""
    chance = random.Random(3)
    found = [
        document(
            f"d{n}",
            "\n\n".join(prose(chance, chance.randint(8, 30)) for _ in range(1 + n % 5)),
            metadata={"n": n, "tags": [chance.choice(WORDS)], "deep": {"x": None, "y": 1.5}},
            links=[{"target": f"d{n + 1}", "kind": "next", "weight": 0.5}],
        )
        for n in range(24)
    ]
    found += [document(f"copy{n}", found[n]["content"]) for n in range(5)]
    # A file that only holds documents has no chunks.
    holder = document("list.json", "\n", fileHash=64 * "0", children=["in list"])
    found += [document("in list", "One of a list.", of="list.json"), holder]
    found += [
        document(name, f"Odd name {name} in May 2026.\n")
        for name in ("a", "a:1", "a:10", "é/ü", "\ue000", "\U0001f600", "with \\ and '")
    ]
    found += [
        document(f"d{n}#summary", f"In short: {WORDS[n]}.", kind="summary", of=f"d{n}")
        for n in range(8)
    ]
    found += [document(f"d{n}/notes", f"Note on {WORDS[n]}.", of=f"d{n}") for n in range(3)]
    return found


async def fill(network: Network, base: Path) -> list[dict[str, Any]]:
    """Index the corpus, and wait until its terms are weighed by its true average length."""
    documents = corpus()
    answer = await network.call(
        "search-index", collection="docs", documents=documents, maxTokens=48, dedupThreshold=0.99
    )
    assert not answer["failed"]
    assert answer["deduplicated"]
    await settled(services_of(network, base), "docs")
    return documents


def exporting(network: Network, base: Path) -> Exporter:
    services = services_of(network, base)
    return Exporter(services.ports)


def importing(network: Network, base: Path) -> Importer:
    services = services_of(network, base)
    return Importer(services)


async def export(network: Network, directory: Path, **options: Any) -> ChunksManifest:
    return await exporting(network, directory.parent).export("docs", directory, unheard, **options)


async def import_(network: Network, directory: Path, name: str, **options: Any) -> None:
    service = importing(network, directory.parent)
    await service.import_artifact(opened(directory), name, unheard, **options)


def opened(directory: Path) -> Artifact:
    manifest = read_manifest(directory)
    assert isinstance(manifest, ChunksManifest)
    return Artifact(directory, manifest)


def listed(base: Path) -> list[str]:
    """What there is, beside the worker's own files."""
    return sorted(name for name in os.listdir(base) if name != ".config")


def without_identity(row: dict[str, Any], name: str) -> dict[str, Any]:
    """A row as it would be in any collection."""
    kept = {key: value for key, value in row.items() if not key.startswith("@")}
    for key in ("collection", "chunkId", "duplicateOf"):
        if kept.get(key):
            assert kept[key].startswith(name)
            kept[key] = kept[key].removeprefix(name)
    return kept


async def contents(network: Network, name: str) -> list[Any]:
    """Everything that a collection holds."""
    return [
        [without_identity(row, name) for row in await chunks(network, name)],
        [without_identity(row, name) for row in await kind_chunks(network, name)],
        [
            {key: value for key, value in row.items() if not key.startswith("@")}
            for row in await source_rows(network, name)
        ],
        await links(network, name),
    ]


async def answers(network: Network, name: str, queries: list[str]) -> list[Any]:
    """The first ten of every query in every mode: ids without the collection, and scores."""

    async def ask(query: str, mode: str) -> list[tuple[str, float]]:
        answer = await network.call(
            "search-query", collection=name, query=query, mode=mode, limit=10
        )
        return [(hit["chunkId"].removeprefix(name), hit["score"]) for hit in answer["results"]]

    found = []
    for query in queries:
        modes = ("hybrid", "semantic", "keyword")
        found += await asyncio.gather(*(ask(query, mode) for mode in modes))
    return found


def assert_same_answers(found: list[Any], expected: list[Any]) -> None:
    assert all(expected)
    for hits, wanted in zip(found, expected, strict=True):
        assert [chunk for chunk, _ in hits] == [chunk for chunk, _ in wanted]
        assert [score for _, score in hits] == pytest.approx(
            [score for _, score in wanted], abs=1e-6
        )


@pytest.mark.slow
async def test_what_is_imported_is_what_was_exported(start: Start, tmp_path: Path) -> None:
    chance = random.Random(4)
    queries = [prose(chance, 1 + n % 4) for n in range(25)]
    async with start(**SMALL_GROUPS) as network:
        documents = await fill(network, tmp_path)
        manifest = await export(network, tmp_path / "new" / "out")
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*.*")}
        assert modes == {0o600}
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "new" / "out").stat().st_mode & 0o777 == 0o700
        held = await contents(network, "docs")
        before = await record(network, "docs")
        expected = await answers(network, "docs", queries)
        assert manifest.counts.chunks == before.chunks
        assert manifest.counts.duplicates == before.duplicates > 0
        assert manifest.counts.kind_chunks == before.kind_chunks > 0
        assert manifest.counts.links == before.links > 0
    async with start(**SMALL_GROUPS) as empty:
        await import_(empty, tmp_path / "new" / "out", "docs")
        assert empty.model.requests == 0
        after = await assert_consistent(empty, "docs")
        assert await contents(empty, "docs") == held
        assert (after.model, after.dimensions) == (before.model, before.dimensions)
        assert after.average_length == before.average_length
        assert after.created_at == before.created_at
        assert_same_answers(await answers(empty, "docs", queries), expected)
        again = await empty.call(
            "search-index", collection="docs", documents=documents, maxTokens=48
        )
        assert again["unchanged"] == len(documents)


async def test_another_name_and_the_place_of_a_collection(start: Start, tmp_path: Path) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        await export(network, tmp_path / "out")
        held = await contents(network, "docs")
        await import_(network, tmp_path / "out", "docs.copy-2")
        await assert_consistent(network, "docs.copy-2")
        assert await contents(network, "docs.copy-2") == held
        assert {row["collection"] for row in await chunks(network, "docs.copy-2")} == {
            "docs.copy-2"
        }

        await network.call("search-delete", collection="docs", source="d1")
        before = await record(network, "docs")
        with pytest.raises(InvalidInput, match="'docs' exists"):
            await import_(network, tmp_path / "out", "docs")
        assert await record(network, "docs") == before
        await import_(network, tmp_path / "out", "docs", replacing=True)
        after = await assert_consistent(network, "docs")
        assert await contents(network, "docs") == held
        assert after.generation == before.generation + 1
        assert before.type not in await types(network)
        await network.call("search-reindex", collection="docs", clear=True)
        await import_(network, tmp_path / "out", "docs")
        await assert_consistent(network, "docs")
        assert await contents(network, "docs") == held
        found = await network.call("search-query", collection="docs", query="amber")
        assert found["collection"] == "docs"


async def test_an_export_of_what_was_imported_is_the_same(start: Start, tmp_path: Path) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        first = await export(network, tmp_path / "first")
        await network.call("search-delete", collection="docs")
        await import_(network, tmp_path / "first", "docs")
        second = await export(network, tmp_path / "second")
        assert second.digests == first.digests
        assert second.revision == first.revision
        named = await export(network, tmp_path / "second", revision="v1.2")
        assert named.revision == "v1.2"


@pytest.mark.slow
@pytest.mark.engine
async def test_pages_become_as_small_as_the_answers_must_be(start: Start, tmp_path: Path) -> None:
    def narrow(tool: str, given: Mapping[str, Any]) -> None:
        asked = given.get("query", "")
        if "$a0" in asked and int((re.findall(r"LIMIT (\d+)", asked) or [99])[-1]) > 2:
            raise RemoteError("the answer is too large")

    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        whole = await export(network, tmp_path / "whole")
        network.faults.append(narrow)
        network.hops()
        assert (await export(network, tmp_path / "narrow")).digests == whole.digests
        # A read that is too large is halved, and none is of what is not there.
        assert len(network.hops()) < 2 * whole.counts.chunks + 2 * whole.counts.sources


async def test_a_collection_that_changes_is_read_again(start: Start, tmp_path: Path) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        left = [2]

        async def change(*_progress: object) -> None:
            if left[0]:
                left[0] -= 1
                await network.call(
                    "search-index", collection="docs", documents=[document(f"new{left[0]}", "New.")]
                )

        service = exporting(network, tmp_path)
        manifest = await service.export("docs", tmp_path / "out", change)
        opened(tmp_path / "out").check()
        assert manifest.counts.sources == (await record(network, "docs")).sources

        left[0] = 1000
        with pytest.raises(DatabaseUnavailable, match="writers kept changing"):
            await service.export("docs", tmp_path / "out", change)
        assert read_manifest(tmp_path / "out") == manifest
        opened(tmp_path / "out").check()
        assert listed(tmp_path) == ["out"]


async def test_a_generation_that_is_replaced_meanwhile_is_left_for_the_new_one(
    start: Start, tmp_path: Path
) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        left = [1]

        async def rebuild(*_progress: object) -> None:
            if left[0]:
                left[0] = 0
                await network.call("search-reindex", collection="docs", maxTokens=24)

        manifest = await exporting(network, tmp_path).export("docs", tmp_path / "out", rebuild)
        assert manifest.collection.chunk_size == 24


async def test_an_empty_collection_goes_out_and_comes_back(
    network: Network, tmp_path: Path
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "Text.")])
    await network.call("search-delete", collection="docs", source="a")
    manifest = await export(network, tmp_path / "out")
    assert manifest.counts.chunks == 0
    await import_(network, tmp_path / "out", "copy")
    await assert_consistent(network, "copy")
    found = await network.call("search-query", collection="copy", query="text")
    assert found["results"] == []


async def test_what_is_not_there_is_not_exported(network: Network, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await export(network, tmp_path / "out")
    assert listed(tmp_path) == []


@pytest.mark.slow
@pytest.mark.engine
async def test_a_damaged_artifact_touches_nothing(start: Start, tmp_path: Path) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        await export(network, tmp_path / "out")
        vectors = tmp_path / "out" / "vectors.f32"
        vectors.write_bytes(vectors.read_bytes()[:-1] + b"\x7f")
        network.calls.clear()
        with pytest.raises(Damaged):
            await import_(network, tmp_path / "out", "copy")
        assert "arcade-command" not in network.hops()


class SpoiledLater(Artifact):
    """Its last chunk is lost as soon as it has been checked."""

    def check(self) -> None:
        super().check()
        lines = self.directory / self.manifest.chunks_file
        data = lines.read_bytes()
        lines.write_bytes(data[:-200] + b" " * 199 + b"\n")


async def test_an_artifact_that_is_damaged_after_it_was_checked_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        await export(network, tmp_path / "out")
        before = await types(network)
        with pytest.raises(Damaged):
            await importing(network, tmp_path).import_artifact(
                SpoiledLater(tmp_path / "out", opened(tmp_path / "out").manifest), "copy", unheard
            )
        assert await types(network) == before
        assert await collections(network) == ["docs"]


@pytest.mark.parametrize("answer_lost", [False, True])
@pytest.mark.parametrize("step", ["replace", "commit"])
async def test_an_import_continues_when_the_database_is_back(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, answer_lost: bool
) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        manifest = await export(network, tmp_path / "out")
        service = importing(network, tmp_path)
        store = service.services.ports.store
        run, calls = getattr(store, step), 0

        async def interrupted(*args: Any, **options: Any) -> Any:
            nonlocal calls
            if step == "commit" and not any(isinstance(change, Delete) for change in args[0]):
                return await run(*args, **options)  # not the one that publishes
            calls += 1
            if calls > 1:
                return await run(*args, **options)
            if answer_lost:
                await run(*args, **options)
            raise DatabaseUnavailable("the database is restarting")

        monkeypatch.setattr(store, step, interrupted)
        imported = await service.import_artifact(opened(tmp_path / "out"), "copy", unheard)
        assert imported.chunks == manifest.counts.chunks
        monkeypatch.undo()
        assert await collections(network) == ["copy", "docs"]
        assert (await assert_consistent(network, "copy")).sources == manifest.counts.sources


@pytest.mark.slow
@pytest.mark.engine
async def test_a_database_that_fails_leaves_what_there_was(start: Start, tmp_path: Path) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        await export(network, tmp_path / "out")
        held, before = await contents(network, "docs"), await types(network)
        written = [0]

        def refuse(tool: str, given: Mapping[str, Any]) -> Any:
            if "INSERT INTO Terms" in given.get("command", ""):
                written[0] += 1
                if written[0] == 3:
                    return {"success": False, "error": "the disk is full"}
            return None

        network.faults.append(refuse)
        with pytest.raises(DatabaseUnavailable):
            await import_(network, tmp_path / "out", "docs", replacing=True)
        assert written == [3]
        assert await contents(network, "docs") == held
        assert await types(network) == before


async def test_writers_may_go_on_while_their_collection_is_being_replaced(
    start: Start, tmp_path: Path
) -> None:
    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        manifest = await export(network, tmp_path / "out")
        done = []

        async def write(*progress: object) -> None:
            done.append(progress)
            await network.call(
                "search-index", collection="docs", documents=[document(f"w{len(done)}", "New.")]
            )

        artifact = opened(tmp_path / "out")
        await importing(network, tmp_path).import_artifact(artifact, "docs", write, replacing=True)
        assert (await assert_consistent(network, "docs")).sources == manifest.counts.sources


@pytest.mark.engine
@pytest.mark.process
async def test_a_backup_remembers_what_agents_were_shown(start: Start, tmp_path: Path) -> None:
    shown = [
        Use(agent, "docs", f"docs:d{n}:0", n, 9, useful=(None, True, False)[n - 1])
        for n in range(1, 4)
        for agent in ("one", "two")
    ]
    other = Use("one", "docs2", "docs2:x:0", 1, 9)

    async with start(**SMALL_GROUPS) as network:
        await fill(network, tmp_path)
        store = network.store
        await store.commit([*map(put_use, shown), put_use(other)])
        manifest = await export(network, tmp_path / "backup", usage=True)
        assert manifest.counts.usage == 6
        assert (await export(network, tmp_path / "plain")).usage_file is None
        await store.commit([put_use(replace(shown[0], uses=100))])
        await import_(network, tmp_path / "plain", "docs", replacing=True)
        assert [use.uses for use in await uses(network, "docs")].count(100) == 1
        await import_(network, tmp_path / "backup", "docs", replacing=True)
        expected = sorted(shown, key=lambda use: (use.agent, use.chunk_id))
        assert await uses(network, "docs") == expected
        await import_(network, tmp_path / "backup", "docs9")
        assert (await uses(network, "docs9"))[0].chunk_id == "docs9:d1:0"
        assert len(await uses(network, "docs2")) == 1


@pytest.mark.engine
@pytest.mark.process
async def test_the_commands_do_what_they_say(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(**NO_GRACE) as network:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("SEARCH_DATABASE", network.settings.database.name)

        async def run(*arguments: str | Path) -> int:
            return (await command(network, *arguments))[0]

        texts = [document(f"d{n}", f"Number {n} of some.") for n in range(40)]
        await network.call("search-index", collection="docs", documents=texts)
        await network.call("search-index", collection="notes", documents=[document("n", "Note.")])
        saved = tmp_path / "saved"
        assert await run("backup", saved) == 0
        assert sorted(os.listdir(saved)) == ["docs", "notes"]
        manifest = read_manifest(saved / "docs")
        assert isinstance(manifest, ChunksManifest)
        assert manifest.usage_file is not None
        assert await run("restore", saved) == 2
        assert await run("restore", saved, "-c", "nothing") == 3
        assert await run("restore", saved, "-c", "notes", "--name", "notes2") == 0
        assert (await assert_consistent(network, "notes2")).sources == 1
        await network.call("search-delete", collection="docs")
        await network.call("search-delete", collection="notes")
        assert await run("restore", saved) == 0
        assert (await assert_consistent(network, "docs")).sources == 40
        assert await run("import", saved / "docs", "--check") == 0
        assert await run("import", saved / "docs") == 2
        assert await run("export", "nothing", tmp_path / "x") == 3
        edited(saved / "notes", index_version=9)
        assert await run("import", saved / "notes", "--name", "n") == 2
        assert await collections(network) == ["docs", "notes", "notes2"]
