"""Searches of vector indexes, and drops of their types."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import httpx
import jpype
import numpy as np
import pytest
from tests.database_servers import PASSWORD, database_server

from kadi_localnet.database import index_use, jvm
from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.index_use import IndexUse
from kadi_localnet.database.remote_server import HttpDatabases

SEARCH = Statement("SELECT expand(vectorNeighbors('T[v]', :vector, 5))")
DROP = Statement("DROP TYPE `T` IF EXISTS UNSAFE")
CREATION = (
    "CREATE DOCUMENT TYPE T BUCKETS 1",
    "CREATE PROPERTY T.v ARRAY_OF_FLOATS",
    "CREATE INDEX ON T (v) LSM_VECTOR METADATA {'dimensions': 32}",
)
OTHER = Statement("drop index `U[v]`")


async def enters(use: IndexUse, *statements: Statement) -> bool:
    """Whether statements may run at once."""
    running = use.of("d", [each.text for each in statements])
    entering = asyncio.ensure_future(running.__aenter__())
    await asyncio.sleep(0)
    if entering.done():
        await running.__aexit__(None, None, None)
        return True
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    return False


async def test_a_search_waits_for_a_drop_and_a_drop_for_searches() -> None:
    use = IndexUse()
    async with use.of("d", [DROP.text]):
        assert not await enters(use, SEARCH)
        assert await enters(use, OTHER, DROP)
        async with use.of("other", [SEARCH.text]):
            pass
    async with use.of("d", [SEARCH.text]):
        assert await enters(use, SEARCH, OTHER)
        assert not await enters(use, OTHER, DROP)
        assert await enters(use, SEARCH)
    with use.searching("d", "T"):
        assert not await enters(use, DROP)
    assert await enters(use, DROP)


async def test_a_drop_waits_in_the_end_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "PATIENCE", 0.05)
    use = IndexUse()
    async with use.of("d", [SEARCH.text]), use.of("d", [DROP.text]):
        assert not await enters(use, SEARCH)


async def test_a_drop_that_waits_goes_before_new_searches() -> None:
    use = IndexUse()
    dropped = asyncio.Event()

    async def drop() -> None:
        async with use.of("d", [DROP.text]):
            dropped.set()

    async with use.of("d", [SEARCH.text]):
        dropping = asyncio.create_task(drop())
        while await enters(use, SEARCH):
            pass
        assert not dropped.is_set()
    await dropping
    assert dropped.is_set()


async def test_a_thread_searches_after_a_drop() -> None:
    use = IndexUse()

    def search() -> None:
        with use.searching("d", "T"):
            assert not use.dropped

    async with asyncio.timeout(10):
        async with use.of("d", [DROP.text]):
            searching = asyncio.create_task(asyncio.to_thread(search))
            await asyncio.sleep(0)
        await searching


async def test_what_the_engine_may_still_run_is_still_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_use, "PATIENCE", 0.05)
    use = IndexUse()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), use.of("d", [DROP.text]):
            await asyncio.Event().wait()
    assert not await enters(use, SEARCH)
    async with asyncio.timeout(10), use.of("d", [SEARCH.text]):
        assert await enters(use, SEARCH)


async def test_work_in_a_thread_uses_its_types_until_it_ends() -> None:
    use = IndexUse()
    ended: Future[None] = Future()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), use.of("d", [DROP.text]) as dropping:
            dropping.running = ended
            await asyncio.Event().wait()
    assert not await enters(use, SEARCH)
    ended.set_result(None)
    assert await enters(use, SEARCH)


@pytest.mark.engine
async def test_a_type_is_dropped_while_it_is_searched(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(300, 32)).astype(float)
    rows = [{"v": vector.tolist()} for vector in vectors]
    searched = asyncio.Semaphore(0)

    async def search(databases: EmbeddedDatabases, place: int) -> None:
        statement = Statement(SEARCH.text, "sql", {"vector": rows[place]["v"]})
        while True:
            try:
                await databases.read("d", statement, timeout=60)
                searched.release()
            except DatabaseError as exc:
                assert "T" in str(exc), exc
                return

    async with EmbeddedDatabases(tmp_path, heap_mb=512) as databases:
        await databases.create("d", timeout=60)
        for _ in range(3):
            for text in CREATION:
                await databases.write("d", [Statement(text)], timeout=60)
            insert = Statement("INSERT INTO T CONTENT :rows", "sql", {"rows": rows})
            await databases.write("d", [insert], timeout=60)
            searches = [asyncio.create_task(search(databases, place)) for place in range(6)]
            for _ in range(3 * len(searches)):
                await searched.acquire()
            await databases.write("d", [DROP], timeout=60)
            async with asyncio.timeout(60):
                await asyncio.gather(*searches)


@pytest.mark.engine
async def test_a_drop_on_a_server_waits_for_a_search(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(200, 32)).astype(float).tolist()

    def near(limit: int) -> Statement:
        text = f"SELECT expand(vectorNeighbors('T[v]', :v, {limit}, {{efSearch: {limit}}}))"
        return Statement(text, "sql", {"v": vectors[3]})

    with database_server(tmp_path) as (url, java):
        server = HttpDatabases([url], user="root", password=PASSWORD)
        await server.create("d", timeout=60)
        insert = Statement(
            "INSERT INTO T CONTENT :rows", "sql", {"rows": [{"v": v} for v in vectors]}
        )
        for statement in (*map(Statement, CREATION), insert):
            await server.write("d", [statement], timeout=60)
        await server.read("d", near(1), timeout=60)
        async with httpx.AsyncClient(auth=("root", PASSWORD)) as client:
            for command in (
                "close database d",
                "open database d",
            ):  # Its vectors are not in memory.
                answer = await client.post(f"{url}/api/v1/server", json={"command": command})
                assert answer.is_success, answer.text
        await server.read("d", near(1), timeout=60)

        # A search has the lock of the index and waits for that of the database. A drop would be
        # the next to get that.
        holds, releases = threading.Event(), threading.Event()

        def hold() -> None:
            holds.set()
            releases.wait(60)

        def search_waits() -> None:
            while "LSMVectorIndex.searchNeighbors" not in jvm.waiting_threads():
                time.sleep(0.01)

        database = java.getDatabase("d").getEmbedded()
        task = jpype.JProxy("java.util.concurrent.Callable", dict={"call": hold})
        holder = threading.Thread(target=database.executeInWriteLock, args=[task])
        holder.start()
        holds.wait(60)
        search = asyncio.create_task(server.read("d", near(40), timeout=60))
        await asyncio.to_thread(search_waits)
        drop = asyncio.create_task(server.write("d", [DROP], timeout=60))
        while not server._indexes.dropped:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        releases.set()
        async with asyncio.timeout(30):
            assert (await search).count == 40
            await drop
        holder.join(10)
        await server.close()
