"""Two workers with a database each, of one database ability: each finds its own chunks."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network, Start, document
from tests.ability_search.flows.stored import jobs_listed, on, second_worker, services_of

from ability_search.config.schema import Settings
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.store import ArcadeStore
from kadi_client import Brokers, Connection

pytestmark = pytest.mark.engine

CALLS = 24
"""Calls at a time, twice as many as the engine has threads."""
TEXTS = {"a": "ant bee", "b": "bee cat", "c": "cat dog"}


@dataclass
class Side:
    """A worker and its database."""

    network: Network
    worker: Brokers | Connection

    @property
    def database(self) -> str:
        return self.network.settings.database.name

    async def call(self, tool: str, /, **tool_input: Any) -> Any:
        return await on(self.network, self.worker, tool, **tool_input)

    async def statements(self) -> None:
        """Use the database in all threads of the engine."""
        query = {"database": self.database, "query": "SELECT FROM Collection"}
        command = {"database": self.database, "command": "UPDATE Collection SET touched = true"}
        invoke = self.network.client.invoke
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLS):
                group.create_task(invoke("arcade-query", query, timeout=PATIENCE))
            group.create_task(invoke("arcade-command", command, timeout=PATIENCE))

    async def contents(self, mode: str) -> set[str]:
        answer = await self.call("search-query", collection="docs", query="bee", mode=mode)
        return {hit["content"] for hit in answer["results"]}


def searching_store(network: Network, settings: Settings) -> ArcadeStore:
    """Return a store that searches indexes without SQL, as that of a worker does."""
    client, database = network.client, settings.database
    scripts = BrokerScripts(
        client.invoke, database=database.name, timeout=PATIENCE, agents=client.agents
    )
    return ArcadeStore(
        scripts,
        message_bytes=database.write_group_bytes,
        scan_below=settings.ranking.scan_below,
    )


@asynccontextmanager
async def two_sides(
    start: Start, home: Path, *, same_ids: bool = True
) -> AsyncIterator[list[Side]]:
    """Start two workers with a database each, whose chunks have the same record ids, or others."""
    async with start() as network:
        database = network.settings.database
        renamed = database.model_copy(update={"name": f"{database.name}-other"})
        settings = dataclasses.replace(network.settings, database=renamed)
        store = searching_store(network, settings)
        other = dataclasses.replace(network, settings=settings, store=store)
        network.store = searching_store(network, network.settings)
        async with second_worker(other, home) as worker:
            sides = [Side(network, network.worker), Side(other, worker)]
            if not same_ids:
                earlier = [document("a", "fox")]
                await sides[1].call("search-index", collection="earlier", documents=earlier)
            for side in sides:
                documents = [
                    document(source, f"{text} of {side.database}") for source, text in TEXTS.items()
                ]
                await side.call("search-index", collection="docs", documents=documents)
            yield sides


@pytest.mark.parametrize("mode", ["keyword", "hybrid", "semantic"])
async def test_a_query_finds_chunks_of_the_database_of_its_worker(
    start: Start, tmp_path: Path, mode: str
) -> None:
    async with two_sides(start, tmp_path) as sides:
        for side in sides:
            await side.statements()
        for _ in range(3):
            async with asyncio.TaskGroup() as group:
                queries = [
                    (side, group.create_task(side.contents(mode)))
                    for side in sides
                    for _ in range(CALLS // 2)
                ]
            for side, query in queries:
                contents = query.result()
                wanted = {f"{TEXTS[source]} of {side.database}" for source in ("a", "b")}
                assert wanted <= contents
                assert all(content.endswith(f"of {side.database}") for content in contents)


async def test_the_self_repair_of_a_database_is_not_disturbed_by_another(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ability_search")
    async with two_sides(start, tmp_path, same_ids=False) as sides:
        for side in sides:
            await side.statements()
        async with asyncio.TaskGroup() as group:
            for side in sides * (CALLS // 2):
                group.create_task(services_of(side.network, tmp_path).self_repair.check())
        for side in sides:
            assert await jobs_listed(side.network, "docs") == []
        assert "arcade-index-search" in sides[0].network.hops()
    assert not [message for message in caplog.messages if "postponed" in message]
