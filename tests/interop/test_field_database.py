"""The database ability of the field: what it answers, and the worker over it.

The rows of :data:`ANSWERS` are held to the real ability where it is present, and to the stand-in of
the other tests everywhere, so that the stand-in answers as the real one does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.ability_search.flows.conftest import MODEL, WordModel
from tests.database_servers import database_server
from tests.interop.field_database import FieldDatabase, field_database, needs_field_database
from tests.interop.real_client import PATIENCE
from tests.shapes import differences

from ability_search.config.loader import load_settings
from ability_search.worker import open_worker
from kadi_client import Connection
from kadi_localnet.broker import serve_broker

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
    # It does not look at what the commit answers.
    (
        "arcade-batch",
        {**ON_D, "commands": ["INSERT INTO T SET k = 'b'"]},
        {"success": True, "results": [ROW], "committed": True},
    ),
    (
        "arcade-batch",
        {**ON_NONE, "commands": ["SELECT 1"]},
        {"success": False, "error": re.compile("^Failed to begin transaction: ")},
    ),
]
"""Tools, inputs and the shapes of the answers, in order, on an empty server."""

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
        {"success": False, "error": "Server is not accessible: fetch failed"},
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
    """A broker, an ArcadeDB server with the field's ability over it, and a caller."""

    url: str
    server: Any
    """The Java object of the server."""
    ability: FieldDatabase
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
    """A network with an empty server."""
    home = tmp_path / "ability"
    home.mkdir()
    async with AsyncExitStack() as stack:
        url, server = stack.enter_context(database_server(tmp_path / "server"))
        broker = await stack.enter_async_context(serve_broker("127.0.0.1", 0))
        ability = await stack.enter_async_context(field_database(home, broker.url, url))
        caller = await stack.enter_async_context(Connection(broker.url, name="caller"))
        network = Field(broker.url, server, ability, caller)
        await network.agents()
        yield network


@needs_field_database
async def test_the_ability_of_the_field_answers_in_these_shapes(field: Field) -> None:
    assert await mismatches(field, ANSWERS) == []
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
        Connection(field.url, name="models", tools=[model.tool]),
        open_worker(settings, base=tmp_path),
    ):
        indexed = await field.call("search-index", {"collection": "pets", "documents": DOCUMENTS})
        assert (indexed["added"], indexed["failed"]) == (3, [])
        before = {mode: await hits(field, mode) for mode in ("keyword", "semantic", "hybrid")}
        assert all(before.values())
        former = await field.agents()
        await field.ability.kill()
        # Node.js starts for a while, so this query meets no ability.
        early = asyncio.create_task(hits(field, "keyword"))
        await field.ability.start()
        assert not await field.agents() & former
        assert await early == before["keyword"]
        assert {mode: await hits(field, mode) for mode in before} == before


async def hits(field: Field, mode: str) -> list[str]:
    """Return the chunks that a query finds, without degradation."""
    query = {"collection": "pets", "query": "which cats purr?", "mode": mode}
    answer = await field.call("search-query", query)
    assert answer.get("success") is not False, answer
    assert "degraded" not in answer
    return [hit["chunkId"] for hit in answer["results"]]
