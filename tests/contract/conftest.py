"""The stores that the contract holds for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store
from kadi_client import Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

TIMEOUT = 60.0


@asynccontextmanager
async def arcadedb(directory: Path) -> AsyncIterator[ArcadeStore]:
    """A store in a new database of the embedded engine, over a broker."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(serve_broker("127.0.0.1", 0))
        engine = await stack.enter_async_context(EmbeddedDatabases(directory))
        await stack.enter_async_context(
            Connection(broker.url, name="database", role="ability", tools=database_tools(engine))
        )
        client = await stack.enter_async_context(Connection(broker.url, name="worker"))
        yield ArcadeStore(BrokerScripts(client.invoke, database="contract", timeout=TIMEOUT))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        engine = pytest.param("arcadedb", marks=pytest.mark.engine)
        metafunc.parametrize("store", ["memory", engine], indirect=True)


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store."""
    if request.param == "memory":
        yield MemoryStore()
    else:
        async with arcadedb(tmp_path) as found:
            yield found
