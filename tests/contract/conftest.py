"""The stores that the contract holds for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ability_search.errors import DatabaseUnavailable
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store
from kadi_client import Connection
from kadi_client.errors import ProviderLost
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

TIMEOUT = 60.0


@asynccontextmanager
async def arcadedb(
    directory: Path, scripts: type[BrokerScripts] = BrokerScripts, *, indexes: bool = False
) -> AsyncIterator[ArcadeStore]:
    """A store in a new database of the embedded engine, over a broker.

    Args:
        directory: Of the database.
        scripts: Run its statements.
        indexes: Whether indexes are searched by their own tool, instead of by statements.
    """
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(serve_broker("127.0.0.1", 0))
        engine = await stack.enter_async_context(EmbeddedDatabases(directory))
        await stack.enter_async_context(
            Connection(broker.url, name="database", role="ability", tools=database_tools(engine))
        )
        client = await stack.enter_async_context(Connection(broker.url, name="worker"))
        offered: dict[str, Any] = {"agents": client.agents} if indexes else {}
        yield ArcadeStore(scripts(client.invoke, database="contract", timeout=TIMEOUT, **offered))


class LostAnswers(BrokerScripts):
    """Loses the first answer to each script that returns one, but for those on term statistics."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lost: set[str] = set()

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        answer = await super().write(script, params)
        if script not in self._lost and "RETURN" in script and "Terms SET" not in script:
            self._lost.add(script)
            raise DatabaseUnavailable("no answer") from ProviderLost("killed")
        return answer


_ONCE = ("test_stored_collections", "test_stored_jobs", "test_committed_once")
"""What changes at most once, and must do so if the answer is lost."""


def _searches(module: str) -> bool:
    return module.endswith(("test_stored_search", "test_stored_index", "test_stored_collections"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        engines = ["arcadedb", "indexes"] if _searches(metafunc.module.__name__) else ["arcadedb"]
        stores = ["memory", *(pytest.param(name, marks=pytest.mark.engine) for name in engines)]
        if metafunc.module.__name__.endswith(_ONCE):
            marks = [pytest.mark.engine, pytest.mark.process]
            stores.append(pytest.param("lost answers", marks=marks))
        metafunc.parametrize("store", stores, indirect=True)


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store."""
    if request.param == "memory":
        yield MemoryStore()
    else:
        scripts = LostAnswers if request.param == "lost answers" else BrokerScripts
        async with arcadedb(tmp_path, scripts, indexes=request.param == "indexes") as found:
            yield found
