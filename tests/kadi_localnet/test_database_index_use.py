"""Searches of vector indexes, and drops of their types."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from kadi_localnet.database import index_use
from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.index_use import IndexUse

SEARCH = Statement("SELECT expand(vectorNeighbors('T[v]', :vector, 5))")
DROP = Statement("DROP TYPE `T` IF EXISTS UNSAFE")
OTHER = Statement("drop index `U[v]`")


class TooLong(Exception):
    pass


def impatient(_seconds: float) -> None:
    raise TooLong


def enters(use: IndexUse, statements: Iterable[Statement]) -> bool:
    try:
        with use.of(statements, impatient):
            return True
    except TooLong:
        return False


def test_a_search_waits_for_a_drop_and_a_drop_for_searches() -> None:
    use = IndexUse()
    with use.of([DROP]):
        assert not enters(use, [SEARCH])
        assert enters(use, [OTHER, DROP])
    with use.of([SEARCH]):
        assert enters(use, [SEARCH, OTHER])
        assert not enters(use, [OTHER, DROP])
        assert enters(use, [SEARCH])
    with use.searching(["T"]):
        assert not enters(use, [DROP])
    assert enters(use, [DROP])


def test_a_drop_waits_in_the_end_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "PATIENCE", 0.05)
    use = IndexUse()
    with use.of([SEARCH]), use.of([DROP]):
        assert not enters(use, [SEARCH])


def test_a_drop_that_waits_goes_before_new_searches() -> None:
    use = IndexUse()
    dropped = threading.Event()

    def drop() -> None:
        with use.of([DROP]):
            dropped.set()

    with use.of([SEARCH]):
        dropping = threading.Thread(target=drop)
        dropping.start()
        while enters(use, [SEARCH]):
            pass
        assert not dropped.is_set()
    dropping.join(10)
    assert dropped.is_set()


@pytest.mark.engine
async def test_a_type_is_dropped_while_it_is_searched(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(300, 32)).astype(float)
    rows = [{"v": vector.tolist()} for vector in vectors]

    async def search(databases: EmbeddedDatabases, place: int) -> None:
        statement = Statement(SEARCH.text, "sql", {"vector": rows[place]["v"]})
        while True:
            try:
                await databases.read("d", statement, timeout=20)
            except DatabaseError as exc:
                assert "T" in str(exc), exc
                return

    async with EmbeddedDatabases(tmp_path, heap_mb=512) as databases:
        await databases.create("d", timeout=20)
        for _ in range(3):
            for text in (
                "CREATE DOCUMENT TYPE T BUCKETS 1",
                "CREATE PROPERTY T.v ARRAY_OF_FLOATS",
                "CREATE INDEX ON T (v) LSM_VECTOR METADATA {'dimensions': 32}",
            ):
                await databases.write("d", [Statement(text)], timeout=20)
            insert = Statement("INSERT INTO T CONTENT :rows", "sql", {"rows": rows})
            await databases.write("d", [insert], timeout=20)
            searches = [asyncio.create_task(search(databases, place)) for place in range(6)]
            await asyncio.sleep(0.3)
            await databases.write("d", [DROP], timeout=20)
            async with asyncio.timeout(20):
                await asyncio.gather(*searches)
