"""The base types of a database: their creation may be cut off anywhere between two of them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.contract.stored_records import chunk, filled, sources

from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.database_schema import schema
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.pages import read_together
from ability_search.store.stored_collections import read_collections
from ability_search.store.values import Put, Read, Records, of_collection
from kadi_client import Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = pytest.mark.engine

SECONDS = 60.0


async def test_a_schema_that_was_cut_off_is_completed_by_the_first_write(tmp_path: Path) -> None:
    statements = schema().text.split(";")
    cuts = [place for place, each in enumerate(statements) if " TYPE " in each]
    assert len(cuts) > 5
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(serve_broker("127.0.0.1", 0))
        engine = await enter(EmbeddedDatabases(tmp_path, warm_up=False))
        await enter(Connection(broker.url, name="database", tools=database_tools(engine)))
        client = await enter(Connection(broker.url, name="worker"))
        for cut in cuts:
            scripts = BrokerScripts(client.invoke, database=f"cut{cut}", timeout=SECONDS)
            await scripts.write(";".join(statements[:cut]) + ";", {})
            store = ArcadeStore(scripts)
            assert await read_collections(store) == []
            created = await filled(store, chunk("a"), chunk("a/t", of="a", kind="title"))
            scope = of_collection("notes")
            await store.commit([Put("note", scope, ("a",), {"n": 1})])
            assert await sources(store, created) == ["a", "a/t"], cut
            (page,) = await read_together(store, Read(Records("note", scope)))
            assert [record.fields for record in page.items] == [{"n": 1}]
