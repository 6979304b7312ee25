"""BrokerScripts: answers and refusals, as the engine and as foreign abilities word them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.virtual_time import elapsed, without_waiting

from ability_search.collection import Recipe, new_collection
from ability_search.documents import SparseVector
from ability_search.errors import DatabaseUnavailable, StatementRefused, TooLarge
from ability_search.store.arcadedb.client import BrokerScripts, refusal
from ability_search.store.arcadedb.core import Statement, rows_together
from ability_search.store.arcadedb.database_schema import create_generation, schema
from ability_search.store.arcadedb.read import asked_of
from ability_search.store.arcadedb.search import SearchStatement
from ability_search.store.records import Search
from ability_search.store.values import Columns, Read, Records
from kadi_client import Call, CallTimeout, Connection, NotConnected, RemoteError, Tool, ToolError
from kadi_client.errors import FrameTooLarge
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

RECORDS, _ = asked_of([Read(Records("note"), limit=1)])
INSERT = Statement("BEGIN; INSERT INTO Collection SET key = 'a'; COMMIT;", {})
MAP = "LET c = SELECT 1 AS n; RETURN {'c': $c};"


class Ability:
    """Answers calls from a list; what is an exception is raised."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[str, Mapping[str, Any], float]] = []

    async def __call__(
        self,
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 30.0,
        target_agent: str | None = None,
    ) -> Any:
        self.calls.append((tool, tool_input, timeout))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def store(ability: Ability, *, timeout: float = 5.0) -> BrokerScripts:
    return BrokerScripts(ability, database="d", timeout=timeout)


def rows(*result: Any) -> dict[str, Any]:
    return {"success": True, "result": list(result), "count": len(result)}


def refused(text: str) -> ToolError:
    return ToolError("arcade-command", {"success": False, "error": text})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (rows({"c": [{"n": 1}]}), {"c": [{"n": 1}]}),
        (rows({"value": {"c": [{"n": 1}]}}), {"c": [{"n": 1}]}),
    ],
    ids=["plain", "wrapped"],
)
async def test_a_returned_map_has_one_shape(answer: Any, expected: Any) -> None:
    ability = Ability(answer)
    assert await store(ability).read(MAP, {"a": 1}) == expected
    ((tool, tool_input, timeout),) = ability.calls
    assert tool == "arcade-query"
    assert tool_input == {
        "database": "d",
        "query": MAP,
        "language": "sqlscript",
        "params": {"a": 1},
    }
    assert timeout == pytest.approx(5.0, abs=0.5)


async def test_a_query_is_sent_as_what_the_engine_keeps() -> None:
    text = rows_together({"a": "SELECT 1 AS n", "b": "SELECT $a.size() AS n"}, ["b"])
    ability = Ability(rows({"b": [{"n": 1}]}), rows())
    assert await store(ability).read(text, {}) == {"b": [{"n": 1}]}
    await store(ability).write("DELETE FROM x", {})
    assert [call[1]["language"] for call in ability.calls] == ["sql", "sqlscript"]


async def test_rows_stay_rows() -> None:
    for result in ([], [{"n": 1}], [{"n": 1}, {"n": 2}]):
        assert await store(Ability(rows(*result))).read("SELECT n FROM x", {}) == result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the disk is full: 12 MiB are free in the data directory", "disk_full"),
        (
            "no database named 'd': create it with arcade-db-create,"
            " arcade-db-list names the existing ones",
            "missing_database",
        ),
        ("Database 'd' is not available: create it with arcade-db-create", "missing_database"),
        ("Database 'd' does not exist", "missing_database"),
        ("Database 'd' is not available on this node", "other"),
        ("SchemaException: Type with name 'Collection' was not found", "missing_type"),
        ("CommandExecutionException: Supertype 'Source' not found", "missing_type"),
        (
            "DuplicatedKeyException: Duplicated key [docs:type x was not found:0] found on index"
            " 'Chunk_x[chunkId]' already assigned to record #1:0",
            "duplicate",
        ),
        ("Found duplicate key no database named", "duplicate"),
        (
            "lost against concurrent writes every time, nothing was written:"
            " ConcurrentModificationException: Concurrent modification on page 3",
            "conflict",
        ),
        (
            "conflicts with concurrent writes at every attempt, nothing was written: page 3",
            "conflict",
        ),
        ("LockTimeoutException: Timeout on locking", "conflict"),
        ("CommandSQLParsingException: SQL syntax error at line 1", "other"),
        ("IllegalArgumentException: Query vector dimension 3 does not match", "other"),
        ("no answer within 30 s: the statement was stopped", "timeout"),
        (
            "the database is busy: 256 calls of this agent are already waiting:"
            " call again in a moment",
            "busy",
        ),
        (
            "the database is busy: no thread was free for this agent within 5 s, nothing was"
            " executed: call again in a moment",
            "busy",
        ),
    ],
)
def test_refusals_are_told_apart(text: str, reason: str) -> None:
    error = refusal(text)
    assert error.reason == reason
    assert error.detail == text
    assert text not in str(error)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Ability]:
    """The real database ability behind a broker; its calls are kept."""

    class Recorded(Ability):
        async def __call__(
            self,
            tool: str,
            tool_input: Mapping[str, Any],
            *,
            timeout: float = 30.0,
            target_agent: str | None = None,
        ) -> Any:
            self.calls.append((tool, tool_input, timeout))
            return await client.invoke(tool, tool_input, timeout=timeout)

    async with (
        EmbeddedDatabases(tmp_path) as databases,
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, tools=database_tools(databases)),
        Connection(broker.url) as client,
    ):
        yield Recorded()


async def reason(reading: Any) -> str:
    with pytest.raises(StatementRefused) as raised:
        await reading
    return raised.value.reason


@pytest.mark.engine
async def test_the_engine_words_its_refusals_as_expected(engine: Ability) -> None:
    database = store(engine, timeout=30)
    kind = "Chunk_x_1"
    assert await reason(database.read(*RECORDS)) == "missing_database"
    assert await reason(database.write(*INSERT)) == ("missing_type")
    assert [tool for tool, *_ in engine.calls][1:] == [
        *("arcade-command", "arcade-db-create", "arcade-command")
    ]
    assert await reason(database.read(*RECORDS)) == "missing_type"
    generation = create_generation(kind, dimensions=8)
    assert await reason(database.write(*generation)) == "missing_type"
    await database.write(*schema())
    await database.write(*generation)
    await database.write(*INSERT)
    again = database.write(*INSERT)
    assert await reason(again) == "duplicate"
    missing = database.read("SELECT FROM `Chunk_y_1` WHERE @rid IN :rids", {"rids": ["#1:0"]})
    assert await reason(missing) == "missing_type"
    recipe = Recipe("auto", 500, 0, "english", "m")
    new = new_collection("a", recipe, dimensions=8, average_length=9.0, now=1)
    collection = replace(new, type=kind, graph=True)
    for vector in ([1.0] * 8, [1.0] * 3):
        searches = [
            Search("semantic", vector, 3),
            Search("keyword", SparseVector([1], [1.0]), 3),
        ]
        found = SearchStatement(collection, searches, Columns(()), beam=3, scan_below=0)
        search = found.statement
        if len(vector) == 8:
            answer = await database.read(*search)
            assert [row["key"] for row in answer["collection"]] == ["a"]
            assert answer["semantic"] == answer["keyword"] == []
        else:
            assert await reason(database.read(*search)) == "other"


async def test_a_missing_database_is_created_by_a_write() -> None:
    missing = refused("no database named 'd': create it with arcade-db-create")
    ability = Ability(missing, {"success": True, "database": "d"}, rows({"ok": 1}))
    assert await store(ability).write("INSERT INTO x", {}) == [{"ok": 1}]
    assert [tool for tool, *_ in ability.calls] == [
        *("arcade-command", "arcade-db-create", "arcade-command")
    ]
    assert ability.calls[1][1] == {"name": "d"}


async def test_another_that_was_faster_to_create_it_is_no_failure() -> None:
    missing = refused("no database named 'd': create it with arcade-db-create")
    ability = Ability(missing, refused("database 'd' already exists"), rows({"ok": 1}))
    assert await store(ability).write("INSERT INTO x", {}) == [{"ok": 1}]


async def test_a_database_that_cannot_be_created_is_a_refusal() -> None:
    missing = refused("no database named 'd': create it with arcade-db-create")
    with pytest.raises(StatementRefused):
        await store(Ability(missing, refused("disk full"))).write("INSERT INTO x", {})


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NotConnected("lost"), "the connection to the broker is lost"),
        (
            RemoteError("no provider"),
            "its provider is not available or failed",
        ),
    ],
)
async def test_reads_are_tried_again(error: Exception, why: str) -> None:
    ability = Ability(error, error, rows({"n": 1}))
    assert await store(ability).read("SELECT n", {}) == [{"n": 1}]
    hopeless = Ability(error, error, error, error)
    with pytest.raises(DatabaseUnavailable) as raised:
        await store(hopeless).read("SELECT n", {})
    assert raised.value.retryable
    assert str(raised.value) == f"arcade-query did not answer: {why}"
    assert len(hopeless.calls) == 3


async def test_writes_are_not_tried_again() -> None:
    ability = Ability(NotConnected("lost"), rows({"n": 1}))
    with pytest.raises(DatabaseUnavailable):
        await store(ability).write("INSERT INTO x", {})
    assert len(ability.calls) == 1


async def test_refusals_are_not_tried_again() -> None:
    ability = Ability(refused("SQL syntax error"), rows())
    with pytest.raises(StatementRefused):
        await store(ability).read("SELECT", {})
    assert len(ability.calls) == 1


@without_waiting
async def test_tries_share_one_timeout() -> None:
    class Slow(Ability):
        async def __call__(
            self,
            tool: str,
            tool_input: Mapping[str, Any],
            *,
            timeout: float = 30.0,
            target_agent: str | None = None,
        ) -> Any:
            self.calls.append((tool, tool_input, timeout))
            try:
                async with asyncio.timeout(timeout):
                    await asyncio.Event().wait()
            except TimeoutError:
                raise CallTimeout(tool, timeout) from None

    ability = Slow()
    with pytest.raises(DatabaseUnavailable):
        await store(ability, timeout=30.0).read("SELECT n", {})
    assert elapsed() == pytest.approx(30.0)
    assert len(ability.calls) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(None, "text", [], {}, {"result": [{"n": 1}]}),
        *({"success": True, "result": "x"}, {"success": True, "result": 7}),
    ],
)
async def test_answers_of_another_shape_are_unavailability(answer: Any) -> None:
    with pytest.raises(DatabaseUnavailable):
        await store(Ability(answer)).write("INSERT INTO x", {})


async def test_what_does_not_fit_into_a_message_is_too_large() -> None:
    ability = Ability(FrameTooLarge(200, 100))
    with pytest.raises(TooLarge) as raised:
        await store(ability).read("SELECT n", {})
    assert "max_message_bytes" in raised.value.hint
    assert "200" in str(raised.value)
    assert len(ability.calls) == 1


async def test_an_answer_that_does_not_fit_into_a_message_is_too_large() -> None:
    async def handle(_tool_input: dict[str, Any], _call: Call) -> Any:
        return rows(*({"n": "x" * 100} for _ in range(100)))

    tool = Tool("arcade-query", "Query.", {"type": "object"}, handle)
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, tools=[tool], max_message_bytes=5000),
        Connection(broker.url) as client,
    ):
        database = BrokerScripts(client.invoke, database="d", timeout=5)
        with pytest.raises(TooLarge) as raised:
            await database.read("SELECT n", {})
    assert raised.value.hint.startswith("Request less")


def test_the_log_has_the_cause_of_a_refusal_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    assert refusal("an odd cause\nof the text").detail == "an odd cause\nof the text"
    refusal("x" * 5000)
    cause, cut = (record.getMessage() for record in caplog.records)
    assert cause == "statement refused (other): an odd cause"
    assert len(cut) < 300
