"""Consistency of stored data: after any operations, under concurrency, for readers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network, Start, document
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    collections,
    command,
    on,
    record,
    rows,
    second_worker,
    services_of,
    settled,
    statistics,
    types,
)
from tests.contract.stored_records import chunk

from ability_search.store.arcadedb.core import source_type
from ability_search.store.arcadedb.write import stage
from ability_search.store.pages import read_all
from ability_search.store.records import HIT
from ability_search.store.values import Chunks, Read
from kadi_client import RemoteError, ToolError
from kadi_client.tools import Handler
from kadi_localnet.database.tools import database_tools

pytestmark = pytest.mark.engine

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"]


def sentences(chance: random.Random, most: int) -> str:
    """Between one and ``most`` sentences of a few words each."""
    return " ".join(
        " ".join(chance.choices(WORDS, k=chance.randint(1, 9))).capitalize() + "."
        for _ in range(chance.randint(1, most))
    )


async def operate(network: Network, chance: random.Random) -> None:
    """One operation that a caller might do."""
    kind = chance.choices(["index", "delete", "blank", "force"], [10, 4, 1, 2])[0]
    sources = chance.sample([f"s{n}" for n in range(12)], k=chance.randint(1, 5))
    if kind == "delete":
        await network.call("search-delete", collection="docs", source=sources[0])
        return
    texts = {source: " " if kind == "blank" else sentences(chance, 12) for source in sources}
    await network.call(
        "search-index",
        collection="docs",
        documents=[
            document(source, text) | {"metadata": {"n": chance.randint(0, 3)}}
            for source, text in texts.items()
        ],
        maxTokens=chance.choice([16, 24, 64]),
        force=kind == "force",
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.process)])
async def test_totals_and_statistics_equal_a_recount_after_random_operations(
    network: Network, seed: int
) -> None:
    chance = random.Random(seed)
    await network.call("search-index", collection="docs", documents=[document("s0", "ant.")])
    for step in range(60):
        await operate(network, chance)
        if step % 6 == 0:
            await assert_consistent(network, "docs")
    await assert_consistent(network, "docs")


async def test_totals_are_zero_when_the_last_source_is_gone(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "ant bee.")])
    await network.call("search-delete", collection="docs", source="a")
    stored = await assert_consistent(network, "docs")
    assert (stored.chunks, stored.sources, stored.tokens, stored.tokens_min) == (0, 0, 0, None)
    info = await network.call("search-collection-info", collection="docs")
    assert (info["chunks"], info["minTokens"], info["avgTokens"]) == (0, 0, 0)


@pytest.mark.process
async def test_folding_the_log_of_terms_changes_no_statistics(
    network: Network, tmp_path: Path
) -> None:
    chance = random.Random(3)
    services = services_of(network, tmp_path)
    await network.call("search-index", collection="docs", documents=[document("s0", "ant.")])
    for _ in range(40):
        await operate(network, chance)
    await settled(services, "docs")
    collection = await assert_consistent(network, "docs")
    log = await statistics(network, collection.type)
    assert 1 <= [each.base for each in log].count(True) <= 2
    assert len(log) < 2 * 32 + 2
    for _ in range(5):
        await operate(network, chance)
    await assert_consistent(network, "docs")
    await services.maintenance.close()


@pytest.mark.slow
async def test_two_workers_that_create_one_collection_leave_one(
    network: Network, tmp_path: Path
) -> None:
    async with second_worker(network, tmp_path) as second:
        answers = await asyncio.gather(
            *(
                on(
                    network,
                    (network.worker, second)[n % 2],
                    "search-index",
                    collection="docs",
                    documents=[document(f"d{n}", f"text {n}")],
                )
                for n in range(6)
            )
        )
        assert [answer.get("added") for answer in answers] == [1] * 6
        stored = await assert_consistent(network, "docs")
        assert stored.sources == 6
        assert await collections(network) == ["docs"]
        assert await types(network) == {stored.type, source_type(stored.type)}


@pytest.mark.process
async def test_concurrent_calls_of_two_workers_on_the_same_sources_leave_each_once(
    network: Network, tmp_path: Path
) -> None:
    chance = random.Random(4)
    await network.call("search-index", collection="docs", documents=[document("s0", "ant.")])
    async with second_worker(network, tmp_path) as second:

        async def write(turn: int) -> Any:
            documents = [document(f"s{n}", f"{turn}. {sentences(chance, 9)}") for n in range(4)]
            documents.append(document(f"own{turn}", sentences(chance, 9)))
            given = {"collection": "docs", "documents": documents, "maxTokens": 16}
            return await on(network, (network.worker, second)[turn % 2], "search-index", **given)

        answers = await asyncio.gather(*(write(turn) for turn in range(8)))
    assert [answer.get("failed") for answer in answers] == [[]] * 8
    stored = await assert_consistent(network, "docs")
    assert stored.sources == 4 + 8
    for source in ("s0", "s1", "s2", "s3"):
        own = [row for row in await chunks(network, "docs") if row["source"] == source]
        turns = {row["createdAt"] for row in own}
        assert len(turns) == 1


def version(number: int) -> list[dict[str, Any]]:
    """A source of three to five chunks that all name their version."""
    size = 3 + number % 3
    text = "\n\n".join(f"needle version{number} part{n} " + "stuff " * 9 for n in range(size))
    return [document("s", text) | {"title": f"v{number}"}]


async def read_while_replacing(network: Network, read: Callable[[], Awaitable[list[Any]]]) -> None:
    """Replace one source of two thirty times; each reading must be all of one version."""
    finished = asyncio.Event()
    seen: set[str] = set()

    async def keep_reading() -> None:
        while not finished.is_set():
            every = await read()
            found = [row for row in every if row["title"] != "other"]
            assert len(found) < len(every)
            titles = {row["title"] for row in found}
            assert len(titles) == 1, (titles, len(found))
            number = int(next(iter(titles))[1:])
            assert sum("needle" in row["content"] for row in found) == 3 + number % 3
            seen.update(titles)

    other = document("other", "needle") | {"title": "other"}
    documents = [*version(0), other]
    await network.call("search-index", collection="docs", documents=documents, maxTokens=16)
    reader = asyncio.create_task(keep_reading())
    try:
        for number in range(1, 31):
            await network.call(
                "search-index", collection="docs", documents=version(number), maxTokens=16
            )
            if reader.done():
                break
    finally:
        finished.set()
        async with asyncio.timeout(PATIENCE):
            await reader
    assert len(seen) > 3
    await assert_consistent(network, "docs")


@pytest.mark.slow
async def test_a_replacement_is_atomic_for_statements_that_read(network: Network) -> None:
    async def read() -> list[Any]:
        live = (await record(network, "docs")).type
        return await rows(network, f"SELECT title, content FROM `{live}`")

    await read_while_replacing(network, read)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["hybrid", pytest.param("keyword", marks=pytest.mark.process)])
async def test_a_query_finds_the_old_or_the_new_chunks_of_a_source_never_a_mix(
    network: Network, mode: str
) -> None:
    async def read() -> list[Any]:
        found = await network.call(
            "search-query", collection="docs", query="needle", mode=mode, limit=100
        )
        hits: list[Any] = found["results"]
        return hits

    await read_while_replacing(network, read)


NOTED = "INSERT INTO Unindexed SET type = :type, token = 'x', at = :at"


def searches(network: Network) -> int:
    """How often the database was asked to search by terms; forgotten then."""
    found = sum(tool == "arcade-index-search" for tool, _ in network.calls)
    network.calls.clear()
    return found


async def test_a_search_is_repeated_for_a_while_while_the_indexes_are_told_of_a_commit(
    network: Network,
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "ant")])
    kind = (await record(network, "docs")).type
    question = {"collection": "docs", "query": "ant", "mode": "keyword"}
    network.calls.clear()
    assert (await network.call("search-query", **question))["count"] == 1
    assert searches(network) == 1
    (clock,) = await rows(network, "SELECT `date.currentTimestamp`() AS ms")
    await command(network, NOTED, type="Chunk_other", at=clock["ms"])
    await command(network, NOTED, type=kind, at=clock["ms"] - 60_000)  # left behind by a crash
    assert (await network.call("search-query", **question))["count"] == 1
    assert searches(network) == 1
    await command(network, NOTED, type=kind, at=clock["ms"] + 600_000)
    assert (await network.call("search-query", **question))["count"] == 1
    assert searches(network) == 8
    await network.call("search-index", collection="docs", documents=[document("b", "bee")])
    assert len(await rows(network, "SELECT FROM Unindexed")) == 2


@pytest.mark.process
async def test_rows_are_read_although_one_that_others_are_compared_with_was_replaced(
    network: Network,
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "ant")])
    kind = (await record(network, "docs")).type
    (stored,) = await rows(network, f"SELECT @rid AS rid FROM `{kind}`")
    gone = stored["rid"].split(":")[0] + ":999"
    ask = Read(Chunks(handles=[stored["rid"], gone]), await record(network, "docs"), HIT)
    assert [row["handle"] for row in await read_all(network.store, ask)] == [stored["rid"]]


def tool_of(network: Network, name: str) -> Handler:
    """The handler of a tool that the worker calls, faults left out."""
    tools = [*database_tools(network.engine), network.model.tool]
    return next(tool.handler for tool in tools if tool.name == name)


SMALL = {"SEARCH_DATABASE_WRITE_GROUP_BYTES": str(64 * 1024)}


def large(topic: str, paragraphs: int = 200) -> str:
    return "\n\n".join(
        f"Paragraph {n} about {topic}: " + " ".join(WORDS) for n in range(paragraphs)
    )


@pytest.mark.process
async def test_a_source_larger_than_a_message_is_staged_and_stored_right(start: Start) -> None:
    async with start(**SMALL) as network:
        documents = [document("big", large("whales")), document("small", "ant")]
        for text in (large("whales"), large("sharks", 150)):
            documents[0]["content"] = text
            await network.call("search-index", collection="docs", documents=documents, maxTokens=32)
            staged = [given for _, given in network.calls if "Staging CONTENT" in str(given)]
            assert len(staged) > 2
            network.calls.clear()
            stored = await assert_consistent(network, "docs")
            assert stored.sources == 2
            big = [row for row in await chunks(network, "docs") if row["source"] == "big"]
            big.sort(key=lambda row: row["chunkIndex"])
            assert "".join(row["lead"] + row["content"] for row in big) == text
            assert await rows(network, "SELECT FROM Staging") == []


@pytest.mark.process
async def test_staged_parts_that_got_lost_are_written_again(start: Start) -> None:
    async with start(**SMALL) as network:
        name = network.settings.database.name
        await network.call("search-index", collection="docs", documents=[document("a", "ant")])
        command = tool_of(network, "arcade-command")
        lost = 0

        async def lose(given: dict[str, Any], call: Any) -> Any:
            nonlocal lost
            if "FROM Staging" in given["command"] and not lost:
                lost += 1
                wipe = {"database": name, "command": "DELETE FROM Staging"}
                await command(wipe, call)
            return await command(given, call)

        network.instead["arcade-command"] = lose
        documents = [document("big", large("whales"))]
        answer = await network.call(
            "search-index", collection="docs", documents=documents, maxTokens=32
        )
        assert (lost, answer["added"]) == (1, 1)
        stored = await assert_consistent(network, "docs")
        assert stored.sources == 2
        assert await rows(network, "SELECT FROM Staging") == []


@pytest.mark.process
async def test_what_dead_writers_left_staged_is_discarded_in_time(
    network: Network, tmp_path: Path
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "ant")])
    now = (await record(network, "docs")).updated_at
    hours = 3600 * 1000
    for token, age in (("dead", 7 * hours), ("alive", hours)):
        text, params = stage(token, [chunk("x", created_at=now - age)])
        await network.client.invoke(
            "arcade-command",
            {
                "database": network.settings.database.name,
                "command": text,
                "language": "sqlscript",
                "params": params,
            },
        )
    services = services_of(network, tmp_path)
    await settled(services, "docs")
    assert [row["token"] for row in await rows(network, "SELECT FROM Staging")] == ["alive"]


async def test_a_write_whose_answer_is_lost_is_done_once(start: Start) -> None:
    async with start() as network:
        await network.call("search-index", collection="docs", documents=[document("a", "ant")])
        command = tool_of(network, "arcade-command")
        lost = 0

        async def swallow(given: dict[str, Any], call: Any) -> Any:
            nonlocal lost
            answer = await command(given, call)
            if "INTO Terms" in given["command"] and lost < 2:
                lost += 1
                raise RemoteError("the line went dead")
            return answer

        network.instead["arcade-command"] = swallow
        await network.call(
            "search-index",
            collection="docs",
            documents=[document("b", large("whales", 20)), document("a", "bee")],
            maxTokens=32,
        )
        assert lost == 2
        stored = await assert_consistent(network, "docs")
        assert stored.sources == 2


@pytest.mark.parametrize("executed", [True, False])
async def test_every_write_of_a_new_collection_outlasts_the_loss_of_its_answer(
    start: Start, executed: bool
) -> None:
    """Whether the database executed it or not, which the caller cannot know."""
    async with start() as network:
        command = tool_of(network, "arcade-command")
        lost: set[str] = set()

        async def swallow(given: dict[str, Any], call: Any) -> Any:
            first = given["command"] not in lost
            lost.add(given["command"])
            if first and not executed:
                raise RemoteError("the line went dead")
            answer = await command(given, call)
            if first:
                raise RemoteError("the line went dead")
            return answer

        network.instead["arcade-command"] = swallow
        documents = [
            document("a", "ant", links=[{"target": "b"}]),
            document("b", "bee", of="a"),
            document("b/summary", "In short.", of="b", kind="summary"),
        ]
        answer = await network.call("search-index", collection="docs", documents=documents)
        # A repeated write finds what the lost one has stored.
        assert (answer["added" if not executed else "updated"], answer["failed"]) == (3, [])
        assert len(lost) > 5
        stored = await assert_consistent(network, "docs")
        assert stored.sources == 3


@pytest.mark.process
async def test_deleting_a_collection_while_another_call_indexes_into_it_leaves_one_state(
    start: Start, tmp_path: Path
) -> None:
    async with (
        start(SEARCH_DATABASE_WRITE_GROUP_CHUNKS="5", SEARCH_EMBEDDING_BATCH_TEXTS="5") as network,
        second_worker(network, tmp_path) as second,
    ):
        documents = [document(f"d{n}", f"text {n}") for n in range(120)]
        first = asyncio.create_task(
            on(network, second, "search-index", collection="docs", documents=documents)
        )
        deletions = 0
        async with asyncio.timeout(PATIENCE):
            while not first.done() and deletions < 5:
                try:
                    await network.client.invoke("search-delete", {"collection": "docs"})
                    deletions += 1
                except ToolError as exc:
                    assert exc.code == "not_found", exc.answer
            report = await first
        assert report.get("failed") == [], report
        assert deletions > 0
        if await collections(network):
            await assert_consistent(network, "docs")
        await network.call("search-index", collection="docs", documents=documents)
        stored = await assert_consistent(network, "docs")
        assert stored.sources == 120
        assert await types(network) == {stored.type, source_type(stored.type)}


@pytest.mark.slow
async def test_a_worker_that_remembers_a_collection_recreated_elsewhere_goes_on(
    network: Network, tmp_path: Path
) -> None:
    async with second_worker(network, tmp_path) as second:
        given = {"collection": "docs", "documents": [document("a", "ant")]}
        await on(network, second, "search-index", **given)

        async def elsewhere(tool: str, **tool_input: Any) -> Any:
            return await on(network, network.worker, tool, **tool_input)

        for change in ("force", "index", "delete"):
            await elsewhere("search-delete", collection="docs")
            await elsewhere("search-index", collection="docs", documents=[document("b", "bee")])
            if change == "delete":
                answer = await on(network, second, "search-delete", collection="docs", source="b")
                assert answer.get("deleted") == 1, answer
            else:
                answer = await on(network, second, "search-index", **given, force=change == "force")
                assert answer.get("added") == 1, answer
            await assert_consistent(network, "docs")


async def test_a_database_that_vanished_is_made_again_without_a_restart(
    network: Network,
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "ant")])
    await network.drop_database()
    listed = await network.call("search-collections")
    assert listed["collections"] == []
    missing = await network.refused("search-query", collection="docs", query="ant")
    assert missing["code"] == "not_found"
    for force in (False, True):
        answer = await network.call(
            "search-index", collection="docs", documents=[document("a", "ant")], force=force
        )
        assert answer["added"] == 1
        await assert_consistent(network, "docs")
        await network.drop_database()
