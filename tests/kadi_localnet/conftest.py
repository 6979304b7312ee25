"""Backends of the database ability: every test that uses them runs against each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.database_servers import PASSWORD, database_server
from tests.kadi_localnet.backends import Abilities, MakeBackend, names

from kadi_localnet.database.backend import Backend
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.remote_server import HttpDatabases


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database_server(tmp_path_factory.mktemp("server")) as (url, _):
        yield url


@pytest.fixture(params=["embedded", "http"])
def make_backend(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBackend:
    kind = request.param
    url = request.getfixturevalue("server_url") if kind == "http" else ""

    @asynccontextmanager
    async def make(**options: Any) -> AsyncIterator[Backend]:
        backend: Any
        if kind == "http":
            backend = HttpDatabases([url], user="root", password=PASSWORD, **options)
        else:
            backend = EmbeddedDatabases(tmp_path, heap_mb=512, **options)
            await backend.start()
        try:
            yield backend
        finally:
            await backend.close()

    return make


@pytest.fixture
async def db(make_backend: MakeBackend) -> AsyncIterator[Abilities]:
    async with make_backend() as backend:
        abilities = Abilities(backend, next(names))
        created = await abilities.call("arcade-db-create", {"name": abilities.database})
        assert created == {"success": True, "database": abilities.database}
        yield abilities
