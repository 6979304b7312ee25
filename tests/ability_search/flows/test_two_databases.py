"""Two database abilities on one network: nothing acknowledged is lost, the ambiguity is named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, WordModel, document

from ability_search.client.tool_client import Target
from ability_search.config.loader import load_settings
from ability_search.extensions.localstack.check_results import Checks
from ability_search.extensions.localstack.health_checks import check_network
from ability_search.worker import open_worker
from kadi_client import Connection, Identity, ToolError
from kadi_localnet.broker import Broker, serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = pytest.mark.engine

SECONDS = 30.0
FIRST, SECOND = Identity.generate(), Identity.generate()


@dataclass
class Bench:
    broker: Broker
    engines: list[EmbeddedDatabases]
    client: Connection
    base: Path

    def database(self, engine: int, identity: Identity) -> Connection:
        tools = database_tools(self.engines[engine])
        return Connection(self.broker.url, identity=identity, name="db", tools=tools)

    @asynccontextmanager
    async def worker(self, patience: float = 0.5) -> AsyncIterator[None]:
        environ = {
            "BROKER_URL": self.broker.url,
            "SEARCH_EMBEDDING_MODEL": MODEL,
            "SEARCH_DATABASE_PATIENCE": str(patience),
            "SEARCH_DATA_DIR": str(self.base),
        }
        async with open_worker(load_settings(environ, self.base), base=self.base):
            yield

    async def index(self, source: str, collection: str = "docs") -> Any:
        documents = [document(source, f"words of {source}")]
        return await self.call("search-index", collection=collection, documents=documents)

    async def call(self, tool: str, /, **given: Any) -> Any:
        return await self.client.invoke(tool, given, timeout=SECONDS)

    async def sources(self) -> list[str]:
        info = await self.client.invoke(
            "search-collection-info", {"collection": "docs"}, timeout=SECONDS
        )
        sources: list[str] = info["sources"]
        return sources


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        engines = [
            await enter(EmbeddedDatabases(tmp_path / name, heap_mb=512, warm_up=False))
            for name in ("one", "two")
        ]
        broker = await enter(serve_broker(port=0))
        await enter(Connection(broker.url, tools=[WordModel().tool]))
        client = await enter(Connection(broker.url))
        yield Bench(broker, engines, client, tmp_path)


@pytest.mark.slow
async def test_a_worker_stays_with_its_database_when_another_one_joins(bench: Bench) -> None:
    async with bench.database(0, FIRST), bench.worker():
        await bench.index("a")
        async with bench.database(1, SECOND):
            for source in "bcdefgh":
                assert (await bench.index(source))["added"] == 1
        assert await bench.sources() == list("abcdefgh")


async def test_a_worker_that_finds_two_databases_refuses_and_names_both(bench: Bench) -> None:
    async with bench.database(0, FIRST), bench.database(1, SECOND), bench.worker():
        with pytest.raises(ToolError, match="several databases are offered") as refused:
            await bench.index("a")
    for identity in (FIRST, SECOND):
        assert identity.agent_id in str(refused.value)


async def test_doctor_names_the_databases_that_differ(bench: Bench) -> None:
    settings = load_settings({"SEARCH_DATA_DIR": str(bench.base)}, bench.base)
    target = Target(bench.broker.url, ("global",), "test")

    async def failures() -> list[str]:
        checks = Checks()
        await check_network(checks, settings, target)
        found = [(each.name, each.state, each.text) for each in checks.made]
        return [text for name, state, text in found if (name, state) == ("database", "fail")]

    async with bench.database(0, FIRST):
        async with bench.worker():
            await bench.index("a")
        assert await failures() == []
        async with bench.database(0, SECOND):
            assert await failures() == []
        async with bench.database(1, SECOND):
            (text,) = await failures()
    assert text.startswith("several databases are offered")
    assert re.search(f"agent {FIRST.agent_id} offers [0-9a-f]{{16}}", text)
    assert f"agent {SECOND.agent_id} offers none" in text


async def test_another_database_in_the_place_of_the_known_one_is_refused(bench: Bench) -> None:
    async with bench.worker():
        async with bench.database(0, FIRST):
            await bench.index("a")
        async with bench.database(1, SECOND):
            other = {"name": "kadi_memory"}
            await bench.client.invoke("arcade-db-create", other, timeout=SECONDS)
            with pytest.raises(ToolError, match="has worked with the database [0-9a-f]{16}"):
                await bench.index("b")
        async with bench.database(0, FIRST):
            assert (await bench.index("b"))["added"] == 1
            assert await bench.sources() == ["a", "b"]


async def test_a_call_waits_for_its_database_although_another_one_is_offered(
    bench: Bench,
) -> None:
    async with bench.worker(patience=SECONDS):
        async with bench.database(0, FIRST):
            await bench.index("a")
        async with bench.database(1, SECOND):
            other = {"name": "kadi_memory"}
            await bench.client.invoke("arcade-db-create", other, timeout=SECONDS)
            call = asyncio.create_task(bench.index("b"))
            async with asyncio.timeout(SECONDS):
                while bench.broker.stats()["outstanding_calls"] < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not call.done(), "the call did not wait"
            async with bench.database(0, FIRST):
                assert (await call)["added"] == 1


async def test_the_same_database_through_another_agent_is_used(bench: Bench) -> None:
    async with bench.worker():
        async with bench.database(0, FIRST):
            await bench.index("a")
        async with bench.database(0, SECOND):
            await bench.index("b")
            assert await bench.sources() == ["a", "b"]


async def test_replicas_share_the_calls(bench: Bench) -> None:
    async with bench.database(0, FIRST), bench.worker():
        await bench.index("a")
    async with bench.database(0, FIRST), bench.database(0, SECOND), bench.worker():
        for source in "bcd":
            await bench.index(source)
        assert await bench.sources() == list("abcd")


@pytest.mark.slow
async def test_the_id_of_a_database_survives_restarts_of_the_worker(bench: Bench) -> None:
    async with bench.database(0, FIRST):
        for source in "ab":
            async with bench.worker():
                await bench.index(source)
        asked = {"database": "kadi_memory", "query": "SELECT id FROM DatabaseId"}
        answer = await bench.client.invoke("arcade-query", asked, timeout=SECONDS)
        assert len(answer["result"]) == 1
