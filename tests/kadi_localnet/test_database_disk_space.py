"""A full disk: what is written, what waits, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.disk_space import MIB, SMALL, DiskSpace
from kadi_localnet.database.embedded import EmbeddedDatabases

LARGE = Statement("INSERT", params={"text": "x" * (SMALL + 1)})
DELETION = Statement("DELETE", params={"source": "a"})
SECONDS = 30.0


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a directory in which a file may be created."""
    monkeypatch.chdir(tmp_path)


def space(free: float) -> DiskSpace:
    return DiskSpace(Path(), 100 * MIB, free=lambda: int(free * MIB))


@pytest.mark.parametrize("free", [200, 1000])
def test_with_enough_space_no_write_waits(free: float) -> None:
    assert space(free).check([LARGE]) == 0


def test_large_writes_wait_the_longer_the_less_space_is_left() -> None:
    waits = [space(free).check([LARGE]) for free in (199, 150, 100)]
    assert waits == pytest.approx([0.01, 0.5, 1.0])
    assert space(100).check([DELETION]) == 0


@pytest.mark.parametrize("free", [99, 25])
def test_below_the_reserve_large_writes_are_refused_and_deletions_work(free: float) -> None:
    with pytest.raises(DatabaseError, match=rf"disk is full.* {free} MiB free.* 100 MiB"):
        space(free).check([LARGE])
    assert space(free).check([DELETION]) == 0


REPLACEMENT = Statement("DELETE FROM T; INSERT INTO T CONTENT :rows", params={"rows": [{"n": 1}]})
CHANGE = Statement("UPDATE T SET n = 1")


@pytest.mark.parametrize("statement", [REPLACEMENT, CHANGE])
def test_below_a_quarter_of_the_reserve_only_deletions_work(statement: Statement) -> None:
    assert space(24).check([DELETION]) == 0
    with pytest.raises(DatabaseError, match="disk is full"):
        space(24).check([statement])
    with pytest.raises(DatabaseError, match="disk is full"):
        space(24).check([DELETION, statement])


def test_a_deletion_on_a_full_disk_gets_the_space_set_aside(tmp_path: Path) -> None:
    whole = 300 * MIB
    used = 0

    def free() -> int:
        held = sum(each.stat().st_size for each in tmp_path.iterdir())
        return max(0, whole - used - held)

    disk = DiskSpace(tmp_path, 100 * MIB, free=free)
    disk.check([CHANGE])
    (held,) = tmp_path.iterdir()
    assert held.stat().st_size == 100 * MIB // 8
    used = whole - held.stat().st_size
    with pytest.raises(DatabaseError, match="disk is full"):
        disk.check([CHANGE])
    assert held.exists()
    assert disk.check([DELETION]) == 0
    assert not held.exists()
    used = whole - MIB
    with pytest.raises(DatabaseError, match="disk is full"):
        disk.check([DELETION])
    used = 0
    disk.check([CHANGE])
    assert held.exists()


def test_many_small_statements_are_a_large_write() -> None:
    each = Statement("INSERT", params={"text": "x" * (SMALL // 4)})
    with pytest.raises(DatabaseError):
        space(50).check([each] * 5)


async def rows(engine: EmbeddedDatabases) -> bytes:
    count = Statement("SELECT count(*) AS n FROM T")
    return bytes((await engine.read("d", count, timeout=SECONDS)).json)


@pytest.mark.engine
async def test_what_is_refused_is_not_stored_and_deleting_works(tmp_path: Path) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=512, warm_up=False) as engine:
        await engine.create("d", timeout=SECONDS)
        for text in ("CREATE DOCUMENT TYPE T", "INSERT INTO T SET n = 1"):
            await engine.write("d", [Statement(text)], timeout=SECONDS)
        engine._space = space(50)
        insert = Statement("INSERT INTO T SET text = :text", params=LARGE.params)
        with pytest.raises(DatabaseError, match="disk is full"):
            await engine.write("d", [insert], timeout=SECONDS)
        assert await rows(engine) == b'[{"n":1}]'
        await engine.write("d", [Statement("DELETE FROM T")], timeout=SECONDS)
        assert await rows(engine) == b'[{"n":0}]'
