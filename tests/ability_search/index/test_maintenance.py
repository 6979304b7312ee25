"""Start and end of maintenance."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.ability_search.index.ports_of import index_ports
from tests.contract.stored_records import change, chunk, filled, outdated, put, record_rows

from ability_search.collection import Recipe, new_collection
from ability_search.errors import DatabaseUnavailable, StatementRefused
from ability_search.index import maintenance as maintenance_module
from ability_search.index.generations import Generations
from ability_search.index.maintenance import Maintenance
from ability_search.store.arcadedb import store as arcade
from ability_search.store.arcadedb.core import Scripts
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.store.values import Count, Counted, Page, Read

PATIENCE = 10.0
RECIPE = Recipe("auto", 64, 0, "english", "m")
DOCS = new_collection("docs", RECIPE, dimensions=4, average_length=50.0, now=1)


class Held:
    """A store without collections that answers when it is allowed to."""

    def __init__(self) -> None:
        self.reads = 0
        self.reached = asyncio.Event()
        self.allowed = asyncio.Event()
        self.failure: Exception | None = None

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        self.reads += 1
        self.reached.set()
        await self.allowed.wait()
        if self.failure is not None:
            raise self.failure
        return {}

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        return []


def maintenance_of(store: Scripts) -> Maintenance:
    return maintenance_over(ArcadeStore(store))


def maintenance_over(store: Store) -> Maintenance:
    ports = index_ports(store, now=0)
    return Maintenance(ports, StatisticsCache(store), Generations(ports))


async def test_what_is_asked_for_while_it_runs_is_done_once_more_afterwards() -> None:
    store = Held()
    maintenance = maintenance_of(store)
    maintenance.schedule("docs")
    async with asyncio.timeout(PATIENCE):
        await store.reached.wait()
        for _ in range(5):
            maintenance.schedule("docs")
        store.allowed.set()
        await maintenance.idle()
    assert store.reads == 2


async def test_a_failure_is_put_off_and_the_next_time_works() -> None:
    store = Held()
    store.allowed.set()
    store.failure = DatabaseUnavailable("gone")
    maintenance = maintenance_of(store)
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):
            maintenance.schedule("docs")
            await maintenance.idle()
            store.failure = None
    assert store.reads == 2


async def test_closing_stops_what_is_running() -> None:
    store = Held()
    maintenance = maintenance_of(store)
    maintenance.schedule("docs")
    async with asyncio.timeout(PATIENCE):
        await store.reached.wait()
        await maintenance.close()
        await maintenance.idle()


class Building:
    """A store with one collection, whose graph is not built before a failure or two."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.built = False

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        if "FROM Collection" in script:
            return record_rows(replace(DOCS, chunks=1000))
        if "vectorNeighbors" in script and self.failures:
            raise self.failures.pop(0)
        return {}

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        self.built |= "fields.graph" in script
        return {"refused": None, "at": 1, "record": []}


@pytest.mark.parametrize(
    ("failure", "built"),
    [
        (StatementRefused("timeout", "no answer within 30 s"), True),
        (DatabaseUnavailable("gone"), True),
        (StatementRefused("other", "no such index"), False),
    ],
    ids=["takes long", "passing", "hopeless"],
)
async def test_a_graph_that_takes_longer_than_a_statement_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, built: bool
) -> None:
    monkeypatch.setattr(arcade, "_BUILD_PAUSE", 0.0)
    store = Building(failure, failure)
    maintenance = maintenance_of(store)
    async with asyncio.timeout(PATIENCE):
        maintenance.schedule("docs")
        await maintenance.idle()
    assert store.built == built


async def test_chunks_are_read_once_for_an_average_length_however_many_writes_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    maintenance = maintenance_over(store)
    reads: list[object] = []
    read = store.read

    async def noted(asks: Sequence[Read | Count]) -> list[Page | Counted]:
        reads.extend(each.of for each in asks if "average_length" in str(each.of))
        return await read(asks)

    monkeypatch.setattr(store, "read", noted)
    record = await filled(store, chunk("a"), name="docs")
    for number in range(3):
        await put(store, record, chunk(f"b{number}"))
        await maintenance.maintain("docs")
    assert len(reads) == 1
    await change(store, record, average_length=9.5)
    await maintenance.maintain("docs")
    assert len(reads) > 1


async def test_an_interrupted_renewal_of_weights_is_completed_page_by_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance_module, "_PAGE", 2)
    store = MemoryStore()
    old = [chunk(f"s{number}", average_length=9.5) for number in range(5)]
    record = await filled(store, *old, name="docs")
    await maintenance_over(store).maintain("docs")
    assert not await outdated(store, record, 10.0)
