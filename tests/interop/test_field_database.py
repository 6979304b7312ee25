"""The database ability of the field: what it answers, and the worker over it.

The rows of :data:`ANSWERS` are held to the real ability where it is present, and everywhere to its
stand-in in other tests, `tests/foreign_database.py`: so the stand-in answers as the real one does.
They are held to our own ability too, over the embedded engine and over a server: whoever reads the
answers of the one can read those of the other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.ability_search.flows.conftest import MODEL, WordModel
from tests.database_servers import PASSWORD, database_server
from tests.foreign_database import foreign_database
from tests.interop.field_database import FieldDatabase, field_database, needs_field_database
from tests.interop.real_client import PATIENCE
from tests.shapes import differences

from ability_search.config.loader import load_settings
from ability_search.worker import open_worker
from kadi_client import Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.remote_server import HttpDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = [
    pytest.mark.process,
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
]


def refused(status: int, exception: str) -> dict[str, Any]:
    """Return the shape of an answer to a statement that the server refuses."""
    error = rf'^HTTP {status}: \{{"error":.*"exception":"[a-z.]*\.{exception}"'
    return {"success": False, "error": re.compile(error)}


REFUSED = {"success": False, "error": str}
ROW = {"@rid": re.compile(r"^#\d+:\d+$"), "@type": "T", "@cat": "d", "k": str}
WRITTEN = {"success": True, "result": list, "count": 1}
ON_D = {"database": "d"}
ON_NONE = {"database": "nope"}

ANSWERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("arcade-db-list", {}, {"success": True, "databases": []}),
    ("arcade-db-create", {"name": "d"}, {"success": True, "database": "d"}),
    ("arcade-db-list", {}, {"success": True, "databases": ["d"]}),
    (
        "arcade-db-create",
        {"name": "d"},
        {"success": False, "error": re.compile("already exists$")},
    ),
    ("arcade-command", {**ON_D, "command": "CREATE DOCUMENT TYPE T"}, WRITTEN),
    (
        "arcade-command",
        {**ON_D, "command": "CREATE DOCUMENT TYPE T"},
        refused(500, "CommandExecutionException"),
    ),
    ("arcade-command", {**ON_D, "command": "CREATE PROPERTY T.k STRING"}, WRITTEN),
    ("arcade-command", {**ON_D, "command": "CREATE INDEX ON T (k) UNIQUE"}, WRITTEN),
    (
        "arcade-command",
        {**ON_D, "command": "INSERT INTO T SET k = :k", "params": {"k": "a"}},
        {"success": True, "result": [ROW], "count": 1},
    ),
    (
        "arcade-command",
        {**ON_D, "command": "INSERT INTO T SET k = :k", "params": {"k": "a"}},
        refused(409, "DuplicatedKeyException"),
    ),
    (
        "arcade-query",
        {**ON_D, "query": "SELECT FROM T"},
        {"success": True, "result": [ROW], "count": 1},
    ),
    (
        "arcade-query",
        {**ON_D, "query": "SELEKT FROM T"},
        refused(400, "CommandSQLParsingException"),
    ),
    ("arcade-query", {**ON_D, "query": "SELECT FROM Absent"}, refused(500, "SchemaException")),
    (
        "arcade-query",
        {**ON_NONE, "query": "SELECT 1"},
        refused(404, "DatabaseNotAvailableException"),
    ),
    (
        "arcade-query",
        {**ON_D, "query": "INSERT INTO T SET k = 'x'"},
        refused(400, "QueryNotIdempotentException"),
    ),
    # It does not check its inputs: the server does.
    (
        "arcade-query",
        {**ON_D, "query": 5},
        refused(400, "RequestRefusedBeforeExecutionException"),
    ),
    (
        "arcade-query",
        {**ON_D, "query": "SELECT 1 AS one", "unknown": 1},
        {"success": True, "result": [{"one": 1}], "count": 1},
    ),
    (
        "arcade-command",
        {
            **ON_D,
            "command": "BEGIN; LET i = INSERT INTO T SET k = 'z'; COMMIT; RETURN {'n': $i.size()};",
            "language": "sqlscript",
        },
        {"success": True, "result": [{"value": {"n": 1}}], "count": 1},
    ),
    (
        "arcade-batch",
        {
            **ON_D,
            "commands": [
                "INSERT INTO T SET k = 'b'",
                {"command": "INSERT INTO T SET k = :k", "params": {"k": "c"}},
            ],
        },
        {"success": True, "results": [ROW], "committed": True},
    ),
    (
        "arcade-batch",
        {
            **ON_D,
            "commands": [
                "UPDATE T SET n = 1 WHERE k = 'b'",
                "SELECT FROM T WHERE k = 'absent'",
            ],
        },
        {"success": True, "results": [{"count": 1}], "committed": True},
    ),
    (
        "arcade-batch",
        {**ON_D, "commands": ["INSERT INTO T SET k = 'd'", "INSERT INTO Absent SET k = 'd'"]},
        {"success": False, "error": re.compile("^Command failed: "), "committed": False},
    ),
    (
        "arcade-batch",
        {**ON_NONE, "commands": ["SELECT 1"]},
        {"success": False, "error": re.compile("^Failed to begin transaction: ")},
    ),
]
"""Tools, inputs and the shapes of the answers, in order, on an empty server."""

OF_THE_FIELD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # It does not look at what the commit answers.
    (
        "arcade-batch",
        {**ON_D, "commands": ["INSERT INTO T SET k = 'b'"]},
        {"success": True, "results": [ROW], "committed": True},
    ),
    (
        "arcade-query",
        {**ON_D, "query": "MATCH (n) RETURN count(n) AS c", "language": "cypher"},
        {"success": True, "result": [{"c": 0}], "count": 1},
    ),
]
"""What ours refuses, after :data:`ANSWERS`: a batch that is not committed, another language."""

DOWN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "arcade-query",
        {**ON_D, "query": "SELECT FROM T"},
        {"success": False, "error": "fetch failed"},
    ),
    (
        "arcade-command",
        {**ON_D, "command": "INSERT INTO T SET k = 'y'"},
        {"success": False, "error": "fetch failed"},
    ),
    (
        "arcade-batch",
        {**ON_D, "commands": ["INSERT INTO T SET k = 'y'"]},
        {"success": False, "error": "fetch failed", "committed": False},
    ),
    (
        "arcade-db-list",
        {},
        {"success": False, "error": re.compile("fetch failed$")},
    ),
]
"""The same when the server is down."""

DOCUMENTS = [
    {"source": "cats", "content": "Cats purr when they are content."},
    {"source": "dogs", "content": "Dogs bark at strangers who pass the gate."},
    {"source": "hay", "content": "In summer the garden smells of hay."},
]


@dataclass
class Field:
    """A broker, an empty ArcadeDB server, and a caller."""

    url: str
    """Address of the broker."""
    server_url: str
    server: Any
    """The Java object of the server."""
    caller: Connection

    async def call(self, tool: str, tool_input: dict[str, Any]) -> Any:
        return await self.caller.invoke(tool, tool_input, timeout=PATIENCE, check=False)

    async def agents(self) -> frozenset[str]:
        """Return the ids of the agents that offer the tools of the database, once there are any."""
        async with asyncio.timeout(PATIENCE):
            while True:
                agents = await self.caller.providers("arcade-query")
                if agents:
                    return agents
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(loop_scope="module")
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    """A network without a database ability."""
    async with AsyncExitStack() as stack:
        url, server = stack.enter_context(database_server(tmp_path / "server"))
        broker = await stack.enter_async_context(serve_broker("127.0.0.1", 0))
        caller = await stack.enter_async_context(Connection(broker.url, name="caller"))
        yield Field(broker.url, url, server, caller)


def field_ability(field: Field, directory: Path) -> AbstractAsyncContextManager[FieldDatabase]:
    """Return the real ability over the server of a network."""
    home = directory / "ability"
    home.mkdir()
    return field_database(home, field.url, field.server_url)


def stand_in(field: Field, _directory: Path) -> AbstractAsyncContextManager[Connection]:
    """Return the stand-in over the server of a network."""
    return foreign_database(field.url, field.server_url)


@asynccontextmanager
async def our_ability_over_the_server(field: Field, _directory: Path) -> AsyncIterator[None]:
    """Offer our database ability over the server of a network."""
    databases = HttpDatabases([field.server_url], user="root", password=PASSWORD)
    try:
        async with Connection(field.url, name="ours", tools=database_tools(databases)):
            yield
    finally:
        await databases.close()


@asynccontextmanager
async def our_ability_over_the_engine(field: Field, directory: Path) -> AsyncIterator[None]:
    """Offer our database ability over the embedded engine."""
    async with (
        EmbeddedDatabases(directory / "databases", heap_mb=512) as databases,
        Connection(field.url, name="ours", tools=database_tools(databases)),
    ):
        yield


@pytest.mark.parametrize("ability", [our_ability_over_the_server, our_ability_over_the_engine])
async def test_our_ability_answers_in_the_shapes_of_the_field(
    field: Field,
    tmp_path: Path,
    ability: Callable[[Field, Path], AbstractAsyncContextManager[object]],
) -> None:
    """Only the texts of errors are its own."""
    async with ability(field, tmp_path):
        await field.agents()
        assert await mismatches(field, [*map(with_any_error, ANSWERS)]) == []
        refusals = [(tool, tool_input, REFUSED) for tool, tool_input, _ in OF_THE_FIELD]
        assert await mismatches(field, refusals) == []


def with_any_error(
    row: tuple[str, dict[str, Any], dict[str, Any]],
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a row of :data:`ANSWERS` that demands no certain text of an error."""
    tool, tool_input, shape = row
    if shape["success"] is True:
        return row
    return tool, tool_input, {**shape, "error": str}


@pytest.mark.parametrize(
    "ability", [stand_in, pytest.param(field_ability, marks=needs_field_database)]
)
async def test_the_ability_of_the_field_and_its_stand_in_answer_in_the_same_shapes(
    field: Field,
    tmp_path: Path,
    ability: Callable[[Field, Path], AbstractAsyncContextManager[object]],
) -> None:
    async with ability(field, tmp_path):
        await field.agents()
        assert await mismatches(field, [*ANSWERS, *OF_THE_FIELD]) == []
        field.server.stop()
        assert await mismatches(field, DOWN) == []


async def mismatches(
    field: Field, rows: list[tuple[str, dict[str, Any], dict[str, Any]]]
) -> list[str]:
    """Make the calls in order; return the answers that have another shape, and how they differ."""
    wrong = []
    for tool, tool_input, shape in rows:
        answer = await field.call(tool, tool_input)
        wrong += [f"{tool} {tool_input}: {text}" for text in differences(answer, shape)]
    return wrong


@needs_field_database
async def test_the_worker_outlives_a_restart_of_the_ability_of_the_field(
    field: Field, tmp_path: Path
) -> None:
    model = WordModel()
    settings = load_settings(
        {
            "HOME": str(tmp_path),
            "BROKER_URL": field.url,
            "BROKER_NETWORKS": "global",
            "SEARCH_EMBEDDING_MODEL": MODEL,
            # Longer than a call here: waiting for the agent that has left would be noticed.
            "SEARCH_DATABASE_PATIENCE": str(3 * PATIENCE),
        },
        tmp_path,
    )
    async with (
        field_ability(field, tmp_path) as ability,
        Connection(field.url, name="models", tools=[model.tool]),
        open_worker(settings, base=tmp_path),
    ):
        await field.agents()
        indexed = await field.call("search-index", {"collection": "pets", "documents": DOCUMENTS})
        assert (indexed["added"], indexed["failed"]) == (3, [])
        before = {mode: await hits(field, mode) for mode in ("keyword", "semantic", "hybrid")}
        assert all(before.values())
        former = await field.agents()
        await ability.kill()
        # Node.js starts for a while, so this query meets no ability.
        early = asyncio.create_task(hits(field, "keyword"))
        await ability.start()
        assert not await field.agents() & former
        assert await early == before["keyword"]
        assert {mode: await hits(field, mode) for mode in before} == before


async def hits(field: Field, mode: str) -> list[str]:
    """Return the chunks that a query finds, once the keyword index has been checked.

    A worker checks the indexes when it meets a database, and after each restart of it.
    """
    query = {"collection": "pets", "query": "which cats purr?", "mode": mode}
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await field.call("search-query", query)
            assert answer.get("success") is not False, answer
            if "degraded" not in answer:
                return [hit["chunkId"] for hit in answer["results"]]
            await asyncio.sleep(0.02)
