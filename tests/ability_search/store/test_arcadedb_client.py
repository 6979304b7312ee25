"""BrokerScripts: answers and refusals, as the engine and as foreign abilities word them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.virtual_time import elapsed, without_waiting

from ability_search.collection import Recipe, new_collection
from ability_search.documents import SparseVector
from ability_search.errors import (
    DatabaseUnavailable,
    EngineTooOld,
    ServerUnreachable,
    StatementRefused,
    TooLarge,
)
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.core import RUN, Statement, rows_together
from ability_search.store.arcadedb.database_schema import create_generation, schema
from ability_search.store.arcadedb.engine_version import OLDEST_ENGINE, is_too_old
from ability_search.store.arcadedb.read import asked_of
from ability_search.store.arcadedb.refusals import refusal
from ability_search.store.arcadedb.search import SearchStatement
from ability_search.store.records import Search
from ability_search.store.values import Columns, Read, Records
from kadi_client import Call, CallTimeout, Connection, NotConnected, RemoteError, Tool, ToolError
from kadi_client.errors import FrameTooLarge
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.backend import MINIMUM_VERSION
from kadi_localnet.database.backend import RUN as ABILITY_RUN
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

RECORDS, _ = asked_of([Read(Records("note"), limit=1)])
INSERT = Statement("BEGIN; INSERT INTO Collection SET key = 'a'; COMMIT;", {})
OLD = {"version": "26.2.1 (build 02cf4731/1771257991354/main)"}
NEW = {"version": "26.10.2 (build e854692736b4/1792085686249/main)"}
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


def databases(*names: str) -> dict[str, Any]:
    return {"success": True, "databases": list(names)}


def refused(text: str) -> ToolError:
    return ToolError("arcade-command", {"success": False, "error": text})


async def test_the_map_of_a_script_is_read_from_its_row() -> None:
    ability = Ability(rows({"value": {"c": [{"n": 1}]}}))
    assert await store(ability).read(MAP, {"a": 1}) == {"c": [{"n": 1}]}
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
    word = {"run": "word"}
    ability = Ability(rows({"b": [{"n": 1}], **word}), rows())
    assert await store(ability).read(text, {}) == {"b": [{"n": 1}]}
    await store(ability).write("DELETE FROM x", {})
    assert [call[1]["language"] for call in ability.calls] == ["sql", "sqlscript"]


async def test_rows_stay_rows() -> None:
    for result in ([], [{"n": 1}], [{"n": 1}, {"n": 2}], [{"value": 1}], [{"value": {}, "n": 1}]):
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
        (
            'HTTP 503: {"error":"Cannot execute","detail":"Concurrent modification on page",'
            '"exception":"com.arcadedb.exception.ConcurrentModificationException"}',
            "conflict",
        ),
        (
            'HTTP 500: {"error":"Internal error","detail":"Database \'d\' is not available",'
            '"exception":"com.arcadedb.exception.DatabaseOperationException"}',
            "missing_database",
        ),
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
    assert isinstance(error, StatementRefused)
    assert error.reason == reason
    assert error.detail == text
    assert reason == "other" or text not in str(error)


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
        *("arcade-command", "arcade-db-list", "arcade-db-create", "arcade-query"),
        *("arcade-query", "arcade-command"),
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
    created = {"success": True, "database": "d"}
    ability = Ability(
        missing, databases("other"), rows(NEW), created, rows({"run": "a word"}), rows({"ok": 1})
    )
    assert await store(ability).write("INSERT INTO x", {}) == [{"ok": 1}]
    assert [tool for tool, *_ in ability.calls] == [
        *("arcade-command", "arcade-db-list", "arcade-query", "arcade-db-create"),
        *("arcade-query", "arcade-command"),
    ]
    assert ability.calls[2][1]["database"] == "other"
    assert ability.calls[3][1] == {"name": "d"}


async def test_another_that_was_faster_to_create_it_is_no_failure() -> None:
    missing = refused("no database named 'd': create it with arcade-db-create")
    exists = refused("database 'd' already exists")
    ability = Ability(missing, databases(), exists, rows({"ok": 1}))
    assert await store(ability).write("INSERT INTO x", {}) == [{"ok": 1}]


async def test_a_database_that_cannot_be_created_is_a_refusal() -> None:
    missing = refused("no database named 'd': create it with arcade-db-create")
    with pytest.raises(StatementRefused, match="disk of the database is full"):
        await store(Ability(missing, databases(), refused("disk full"))).write("INSERT INTO x", {})


async def test_on_an_engine_that_is_too_old_nothing_is_created() -> None:
    missing = refused('HTTP 500: {"error":"x","detail":"Database \'d\' is not available"}')
    ability = Ability(missing, databases("graphs"), rows(OLD))
    with pytest.raises(EngineTooOld) as raised:
        await store(ability).write("INSERT INTO x", {})
    assert str(raised.value) == (
        "ArcadeDB 26.2.1 found at the database ability, 26.10.2 or later is needed"
    )
    assert not raised.value.retryable
    assert "arcade-db-create" not in [tool for tool, *_ in ability.calls]


@pytest.mark.parametrize("dropped", [True, False])
async def test_a_database_made_to_ask_an_engine_without_any_is_dropped_again(
    dropped: bool,
) -> None:
    missing = refused("Database 'd' is not available")
    created = {"success": True, "database": "d"}
    outcome = {"success": True} if dropped else RemoteError("no such tool")
    ability = Ability(missing, databases(), created, rows(OLD), outcome)
    with pytest.raises(EngineTooOld, match=r"ArcadeDB 26\.2\.1 found") as raised:
        await store(ability).write("INSERT INTO x", {})
    assert ability.calls[-1][0] == "arcade-db-drop"
    assert ability.calls[-1][1] == {"name": "d", "database": "d", "confirm": True}
    assert ("'d' was created" in raised.value.hint) == (not dropped)


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("26.2.1 (build 02cf/1771257991354/main)", True),
        *(("26.10.1", True), ("25.12", True), ("26.10", True)),
        *(("26.10.2", False), ("26.10.2.post1", False), ("26.11.1-SNAPSHOT", False)),
        *(("27.1", False), ("", False), ("unknown", False)),
    ],
)
def test_versions_of_engines_are_compared(version: str, old: bool) -> None:
    assert is_too_old(version) == old


def test_the_database_ability_and_its_client_agree() -> None:
    assert (OLDEST_ENGINE, RUN) == (MINIMUM_VERSION, ABILITY_RUN)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NotConnected("lost"), "the connection to the broker is lost: 'lost'"),
        (RemoteError("it broke"), "the database ability failed: 'it broke'"),
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
    error = refusal("an odd cause\nof the text")
    assert isinstance(error, StatementRefused)
    assert error.detail == "an odd cause\nof the text"
    refusal("x" * 5000)
    cause, cut = (record.getMessage() for record in caplog.records)
    assert cause == "statement refused (other): an odd cause"
    assert len(cut) < 300


UNREACHED = [
    # Of the field's ability, by its HTTP client and its checks.
    "fetch failed",
    "connect ECONNREFUSED 127.0.0.1:2480",
    "Server is not accessible: fetch failed",
    "Server is not ready (HTTP 503)",
    "Failed to begin transaction: fetch failed",
    'HTTP 503: {"error":"Server is starting"}',
    # Of ours.
    "no database server answers (http://127.0.0.1:2480: All connection attempts failed)",
    "the connection was lost before the answer: whether it took effect is unknown",
]


@pytest.mark.parametrize("text", UNREACHED)
@pytest.mark.parametrize("raised", [True, False], ids=["raised", "returned"])
async def test_a_server_that_is_down_is_said_to_be(text: str, raised: bool) -> None:
    failure = RemoteError(text) if raised else refused(text)
    ability = Ability(failure, failure, failure)
    with pytest.raises(ServerUnreachable) as error:
        await store(ability).read("SELECT", {})
    assert "does not reach its ArcadeDB server" in str(error.value)
    assert error.value.retryable
    assert "Start the server" in error.value.hint
    assert len(ability.calls) == 3


@pytest.mark.parametrize(
    ("text", "reason", "retryable", "hint"),
    [
        (
            'HTTP 403: {"error":"Security error","detail":"User/Password not valid",'
            '"exception":"com.arcadedb.server.security.ServerSecurityException"}',
            *("rights", False, "user and password"),
        ),
        ("Failed to list databases: 401", *("rights", False, "user and password")),
        (
            'HTTP 500: {"detail":"Record #233:0 not found",'
            '"exception":"com.arcadedb.exception.RecordNotFoundException"}',
            *("record_missing", True, "search-reindex"),
        ),
        ("DatabaseIsReadOnlyException: Database is read only", *("read_only", False, "writable")),
        ("OutOfMemoryError: Java heap space", *("memory", True, "heap")),
        ("java.io.IOException: No space left on device", *("disk_full", True, "Free disk space")),
        ("no answer within 30 s: the statement was stopped", *("timeout", True, "more time")),
    ],
)
def test_each_reason_has_its_remedy(text: str, reason: str, retryable: bool, hint: str) -> None:
    error = refusal(text, who="'graphs' (agent 1f2e)")
    assert isinstance(error, StatementRefused)
    assert (error.reason, error.retryable) == (reason, retryable)
    assert hint in error.hint


def test_the_words_of_a_database_are_quoted_without_what_was_sent() -> None:
    secret = "a secret sentence of a document"
    body = {
        "error": "Error on transaction commit",
        "detail": f"Cannot convert {secret} near 'O''Brien' [docs:a:0] at /data/db/x: bad value",
        "exception": "com.arcadedb.exception.SerializationException",
    }
    text = f"HTTP 500: {json.dumps(body)}"
    error = str(refusal(text, who="'graphs' (agent 1f2e)", params={"rows": [{"content": secret}]}))
    assert error.startswith("'graphs' (agent 1f2e) refused a statement: ")
    assert "HTTP 500: SerializationException: Cannot convert" in error
    assert "bad value" in error
    for hidden in (secret, "Brien", "docs:a", "/data"):
        assert hidden not in error


async def test_an_answer_of_another_shape_is_described() -> None:
    with pytest.raises(DatabaseUnavailable, match="an object with a, b instead of") as raised:
        await store(Ability({"b": 1, "a": 2})).write("INSERT INTO x", {})
    assert "agent" in raised.value.hint
