"""Database abilities that are not ours: another id at every start, errors that are returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, WordModel, document
from tests.ability_search.flows.test_crash import DATABASE, Process
from tests.database_servers import OLD_ENGINE, PASSWORD, ServerProcess, database_server
from tests.foreign_database import NAME, foreign_database

from ability_search.client.tool_client import Target
from ability_search.config.loader import load_settings
from ability_search.extensions.localstack.check_results import Check, Checks
from ability_search.extensions.localstack.health_checks import check_network
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.worker import open_worker
from kadi_client import CallTimeout, Connection, ToolError
from kadi_localnet.broker import Broker, serve_broker
from kadi_localnet.database.remote_server import HttpDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

SECONDS = 60.0
SOON = 10.0
"""Seconds within which a call is answered that need not wait for anybody; a broker keeps the place
of a provider for 30."""


@dataclass
class Bench:
    """A broker with a model manager, and a client."""

    broker: Broker
    client: Connection
    base: Path

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        environ = {
            "BROKER_URL": self.broker.url,
            "SEARCH_EMBEDDING_MODEL": MODEL,
            "SEARCH_DATABASE": "found",
            "SEARCH_DATA_DIR": str(self.base),
        }
        async with open_worker(load_settings(environ, self.base), base=self.base):
            yield

    async def call(self, tool: str, /, **given: Any) -> Any:
        return await self.client.invoke(tool, given, timeout=SECONDS)

    async def index(self, *sources: str) -> Any:
        documents = [document(source, f"words of {source}") for source in sources]
        return await self.call("search-index", collection="docs", documents=documents)

    async def query(self, mode: str = "keyword") -> Any:
        return await self.call("search-query", collection="docs", query="words", mode=mode)

    async def found(self, mode: str = "keyword") -> set[str]:
        return {hit["source"] for hit in (await self.query(mode))["results"]}

    async def refused(self, tool: str, /, **given: Any) -> Any:
        with pytest.raises(ToolError) as failure:
            await self.call(tool, **given)
        return failure.value.answer

    async def doctor(self) -> list[Check]:
        environ = {"SEARCH_DATA_DIR": str(self.base), "SEARCH_DATABASE": "found"}
        settings = load_settings(environ, self.base)
        checks = Checks()
        await check_network(checks, settings, Target(self.broker.url, ("global",), "test"))
        return [check for check in checks.made if check.name == "database"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(serve_broker(port=0))
        await enter(Connection(broker.url, name="models", tools=[WordModel().tool]))
        client = await enter(Connection(broker.url, name="test"))
        yield Bench(broker, client, tmp_path)


async def test_an_ability_that_restarts_under_another_id_is_used_at_once(
    bench: Bench, tmp_path: Path
) -> None:
    with database_server(tmp_path / "server") as (server, _):
        async with bench.worker():
            async with foreign_database(bench.broker.url, server) as first:
                await bench.index("a", "b")
                assert await bench.found() == {"a", "b"}
            waiting = [
                asyncio.create_task(bench.query("keyword")),
                asyncio.create_task(bench.query("hybrid")),
                asyncio.create_task(bench.index("c")),
            ]
            # An error would have come back long before the broker has answered this often.
            for _ in range(100):
                await bench.client.list_tools()
            assert not any(task.done() for task in waiting), "there is no database to answer"
            async with foreign_database(bench.broker.url, server) as second:
                assert first.agent_id != second.agent_id
                async with asyncio.timeout(SOON):
                    answers = await asyncio.gather(*waiting)
                    assert [answer["success"] for answer in answers if "success" in answer] == []
                    assert {hit["source"] for hit in answers[0]["results"]} >= {"a", "b"}
                    assert answers[2]["added"] == 1
                    assert await bench.found("hybrid") == {"a", "b", "c"}
            async with foreign_database(bench.broker.url, server):
                async with asyncio.timeout(SOON):
                    assert await bench.found() == {"a", "b", "c"}
                    assert (await bench.index("d"))["added"] == 1


async def test_of_several_agents_with_the_database_one_may_leave(
    bench: Bench, tmp_path: Path
) -> None:
    url = bench.broker.url
    with database_server(tmp_path / "server") as (server, _):
        async with foreign_database(url, server), AsyncExitStack() as leaving:
            await leaving.enter_async_context(foreign_database(url, server))
            async with bench.worker():
                await bench.index("a")
                queries = [asyncio.create_task(bench.found()) for _ in range(20)]
                await leaving.aclose()
                async with asyncio.timeout(SOON):
                    assert await asyncio.gather(*queries) == [{"a"}] * 20
                    for mode in ("keyword", "hybrid", "semantic"):
                        assert await bench.found(mode) == {"a"}
                    assert (await bench.index("b"))["added"] == 1


async def test_an_ability_without_its_server_is_named_with_what_it_said(
    bench: Bench, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        server = ServerProcess(tmp_path / "server")
        stack.push_async_callback(server.kill)
        await server.start()
        ability = await stack.enter_async_context(foreign_database(bench.broker.url, server.url))
        await stack.enter_async_context(bench.worker())
        await bench.index("a")
        await server.kill()
        where = f"'{NAME}' (agent {ability.agent_id})"
        for tool, given in (
            ("search-query", {"collection": "docs", "query": "words", "mode": "keyword"}),
            ("search-collections", {}),
            ("search-collection-info", {"collection": "docs"}),
        ):
            answer = await bench.refused(tool, **given)
            expected = f"{where} does not reach its ArcadeDB server: 'fetch failed'"
            assert (answer["error"], answer["retryable"]) == (expected, True), tool
            assert "Start the server" in answer["hint"]
        (tools, check) = await bench.doctor()
        assert (tools.state, check.state) == ("ok", "fail")
        assert where in check.text
        assert "does not reach its ArcadeDB server" in check.text
        assert "Start the server" in check.remedy
        await server.start()
        assert await bench.index("b")


async def healed(bench: Bench, expected: set[str]) -> list[Any]:
    """Ask until an answer is not degraded; return the degraded ones. No other may lack anything."""
    degraded: list[Any] = []
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await bench.query()
            if "degraded" not in answer:
                assert {hit["source"] for hit in answer["results"]} == expected
                return degraded
            degraded.append(answer)


class Embedded(Process):
    """A database ability of ours with its engine, as one process."""

    def __init__(self, broker: str, directory: Path) -> None:
        super().__init__(DATABASE, broker, str(directory), environ={"HOME": str(directory.parent)})


@asynccontextmanager
async def killable(
    kind: str, broker: str, directory: Path
) -> AsyncIterator[Embedded | ServerProcess]:
    """Yield what holds the database, started: a server behind an ability, or an ability."""
    async with AsyncExitStack() as stack:
        if kind == "embedded":
            engine: Embedded | ServerProcess = Embedded(broker, directory)
        else:
            engine = server = ServerProcess(directory)
        stack.push_async_callback(engine.kill)
        await engine.start()
        if kind == "foreign":
            await stack.enter_async_context(foreign_database(broker, server.url))
        elif kind == "http":
            backend = HttpDatabases([server.url], user="root", password=PASSWORD)
            stack.push_async_callback(backend.close)
            tools = database_tools(backend)
            await stack.enter_async_context(Connection(broker, name="db", tools=tools))
        yield engine


SOURCES = {f"d{number}" for number in range(10)}
KINDS = pytest.mark.parametrize("kind", ["foreign", "http", "embedded"])


@pytest.mark.process
@pytest.mark.parametrize("asked", [False, True], ids=["idle", "asked"])
@KINDS
async def test_after_a_kill_no_answer_silently_lacks_hits(
    bench: Bench, tmp_path: Path, kind: str, asked: bool
) -> None:
    async with (
        killable(kind, bench.broker.url, tmp_path / "data") as engine,
        bench.worker(),
    ):
        await bench.index(*SOURCES)
        await healed(bench, SOURCES)
        await engine.kill()
        waiting = asyncio.create_task(bench.query("hybrid")) if asked else None
        await engine.start()
        first = await bench.query()
        assert first["degraded"]["code"] == "index_incomplete"
        assert first["degraded"]["mode"] == first["mode"] == "keyword"
        info = await bench.call("search-collection-info", collection="docs")
        listed = await bench.call("search-collections")
        semantic = await bench.query("semantic")
        assert {hit["source"] for hit in semantic["results"]} == SOURCES
        assert "degraded" not in semantic
        await healed(bench, SOURCES)
        # The embedded engine repairs its indexes when it opens a database; a server loses entries.
        assert kind == "embedded" or len(first["results"]) < len(SOURCES)
        for described in () if kind == "embedded" else (info, *listed["collections"]):
            assert described["degraded"]["code"] == "index_incomplete"
        info = await bench.call("search-collection-info", collection="docs")
        assert "degraded" not in info
        if waiting is not None:
            await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.process
async def test_a_worker_that_starts_after_a_kill_checks_first(bench: Bench, tmp_path: Path) -> None:
    async with killable("foreign", bench.broker.url, tmp_path / "data") as engine:
        async with bench.worker():
            await bench.index(*SOURCES)
        await engine.kill()
        await engine.start()
        async with bench.worker():
            assert await healed(bench, SOURCES)


@pytest.mark.process
async def test_replaced_and_derived_chunks_are_checked_too(bench: Bench, tmp_path: Path) -> None:
    async with (
        killable("foreign", bench.broker.url, tmp_path / "data") as engine,
        bench.worker(),
    ):
        await bench.index(*SOURCES)
        await engine.kill()
        await engine.start()
        await healed(bench, SOURCES)
        documents = [document("d4", "fresh words of the fourth")]
        await bench.call("search-index", collection="docs", documents=documents)
        await engine.kill()
        await engine.start()
        async with asyncio.timeout(SECONDS):
            while True:
                query = {"collection": "docs", "query": "fresh", "mode": "keyword"}
                answer = await bench.call("search-query", **query)
                if "degraded" not in answer:
                    break
        assert [hit["source"] for hit in answer["results"]] == ["d4"]


@pytest.mark.process
async def test_every_worker_declares_its_doubts(bench: Bench, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = ServerProcess(tmp_path / "server")
        stack.push_async_callback(server.kill)
        await server.start()
        await stack.enter_async_context(foreign_database(bench.broker.url, server.url))
        for _ in range(3):
            await stack.enter_async_context(bench.worker())
        await bench.index("a", "b", "c")
        for _ in range(6):
            await healed(bench, {"a", "b", "c"})
        await server.kill()
        await server.start()
        for _ in range(30):
            answer = await bench.query()
            complete = {hit["source"] for hit in answer["results"]} == {"a", "b", "c"}
            assert complete or answer["degraded"]["code"] == "index_incomplete"


@pytest.mark.process
@pytest.mark.skipif(not OLD_ENGINE.exists(), reason="make old-engine installs the server")
@pytest.mark.parametrize("others", [[], ["graphs"]], ids=["none", "another"])
async def test_an_engine_that_is_too_old_is_refused_before_anything_is_created(
    bench: Bench, tmp_path: Path, others: list[str]
) -> None:
    async with AsyncExitStack() as stack:
        server = ServerProcess(tmp_path / "server", package=OLD_ENGINE)
        stack.push_async_callback(server.kill)
        await server.start()
        ability = await stack.enter_async_context(foreign_database(bench.broker.url, server.url))
        for name in others:
            await bench.call("arcade-db-create", name=name)
        await stack.enter_async_context(bench.worker())
        documents = [document("a", "words")]
        answer = await bench.refused("search-index", collection="docs", documents=documents)
        where = f"'{NAME}' (agent {ability.agent_id})"
        assert answer["error"] == f"ArcadeDB 26.2.1 found at {where}, 26.10.2 or later is needed"
        assert (answer["code"], answer["retryable"]) == ("database_unavailable", False)
        assert "Upgrade" in answer["hint"]
        assert (await bench.call("arcade-db-list"))["databases"] == others
        (_, check) = await bench.doctor()
        if others:
            assert check.state == "fail"
            assert check.text == answer["error"]


async def test_a_broker_that_keeps_calls_of_absent_agents_is_not_waited_for_twice(
    bench: Bench, tmp_path: Path
) -> None:
    """The client looks at the list of agents after a call without an answer."""
    with database_server(tmp_path / "server") as (server, _):
        async with AsyncExitStack() as stack:
            silent = await stack.enter_async_context(AsyncExitStack())
            await silent.enter_async_context(foreign_database(bench.broker.url, server))
            pinned: list[str | None] = []

            async def invoke(tool: str, tool_input: Any, **options: Any) -> Any:
                target = options["target_agent"]
                listed = await bench.client.providers(tool)
                pinned.append(target)
                if target is not None and target not in listed:
                    raise CallTimeout(tool, 0.1)
                return await bench.client.invoke(tool, tool_input, **options)

            scripts = BrokerScripts(invoke, database="d", timeout=SOON, agents=bench.client.agents)
            await scripts.write("CREATE DOCUMENT TYPE T IF NOT EXISTS", {})
            assert await scripts.read("SELECT count(*) AS n FROM T", {}) == [{"n": 0}]
            await silent.aclose()
            await stack.enter_async_context(foreign_database(bench.broker.url, server))
            pinned.clear()
            assert await scripts.read("SELECT count(*) AS n FROM T", {}) == [{"n": 0}]
            assert len({*pinned}) == 2, "the one that left was called once, then its successor"
