"""The reports that agents of the field ask a database ability for, over both backends."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from tests.database_servers import PASSWORD
from tests.kadi_localnet.backends import Abilities, names

from kadi_localnet.database.backend import Backend, DatabaseError, Rows, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.remote_server import HttpDatabases
from kadi_localnet.database.reports import formatted

pytestmark = pytest.mark.engine


async def test_the_info_of_a_database_has_its_types_indexes_records_and_size(db: Abilities) -> None:
    await db.run("CREATE VERTEX TYPE Parent BUCKETS 2")
    await db.run("CREATE VERTEX TYPE Child EXTENDS Parent BUCKETS 1")
    await db.run("CREATE PROPERTY Parent.name STRING")
    await db.run("CREATE INDEX ON Parent (name) UNIQUE")
    for name, kind in {"a": "Parent", "b": "Parent", "c": "Child"}.items():
        await db.run(f"INSERT INTO {kind} SET name = :name", {"name": name})
    info = await db.call("arcade-db-info", {"database": db.database})
    size, shown = info["files"].pop("size"), info["files"].pop("sizeFormatted")
    assert size > 100_000
    assert re.fullmatch(r"[\d.]+ [KM]B", shown)
    indexes = info["schema"]["details"].pop("indexList")
    assert "Parent[name]" in indexes
    assert info == {
        "success": True,
        "name": db.database,
        "schema": {
            "types": 2,
            "indexes": len(indexes),
            "details": {"typeList": ["Child", "Parent"]},
        },
        "statistics": {"recordCount": 3, "typeCount": 2},
        "files": {"exists": True},
        "serverInfo": {"accessible": True},
    }
    assert (await db.call("arcade-db-info", {"name": db.database}))["name"] == db.database


async def test_the_statistics_are_of_all_databases_or_of_one(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    await db.run("INSERT INTO T SET x = 1")
    other = next(names)
    await db.call("arcade-db-create", {"name": other})
    everything = await db.call("arcade-db-stats", {})
    entries = {entry["name"]: entry for entry in everything["databases"]}
    assert list(entries) == (await db.call("arcade-db-list", {}))["databases"]
    assert everything["success"] is True
    assert everything["totalDatabases"] == len(entries)
    assert everything["totalSize"] == sum(entry["size"] for entry in entries.values())
    assert everything["totalSizeFormatted"].endswith("B")
    assert (entries[db.database]["recordCount"], entries[db.database]["typeCount"]) == (1, 1)
    assert (entries[other]["recordCount"], entries[other]["typeCount"]) == (0, 0)
    one = await db.call("arcade-db-stats", {"database": db.database})
    assert one.keys() == {"success", "databases"}
    assert [entry["name"] for entry in one["databases"]] == [db.database]
    assert one["databases"][0].keys() == entries[db.database].keys()


@pytest.mark.parametrize("tool", ["arcade-db-info", "arcade-db-stats"])
async def test_a_report_on_a_missing_database_is_an_error(db: Abilities, tool: str) -> None:
    answer = await db.call(tool, {"database": "nowhere"})
    assert answer["success"] is False
    assert "nowhere" in answer["error"]
    assert "create it with arcade-db-create" in answer["error"]


async def test_reports_name_no_paths_settings_or_addresses(db: Abilities, tmp_path: Path) -> None:
    for tool, given in {
        "arcade-db-info": {"database": db.database},
        "arcade-db-stats": {},
        "arcade-status": {},
        "arcade-health": {},
    }.items():
        text = json.dumps(await db.call(tool, given))
        for secret in (str(tmp_path), "/", "127.0.0.1", "root", PASSWORD, "arcadedb."):
            assert secret not in text, (tool, secret)


async def test_the_status_and_health_of_an_engine_that_answers(db: Abilities) -> None:
    status = await db.call("arcade-status", {})
    assert status == {
        "running": True,
        "container": db.backend.container,
        "uptime": None,
        "ports": [],
    }
    healthy = await db.call("arcade-health", {})
    assert healthy == {
        "healthy": True,
        "checks": {"container": True, "api": True, "database": True},
    }


@pytest.mark.parametrize("kind", ["embedded", "http"])
async def test_the_status_and_health_of_an_engine_that_does_not_answer(
    tmp_path: Path, kind: str
) -> None:
    backend: Backend = EmbeddedDatabases(tmp_path)
    if kind == "http":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        backend = HttpDatabases([url], user="root", password=PASSWORD)
    if kind == "embedded":
        await backend.close()
    db = Abilities(backend, "none")
    status = await db.call("arcade-status", {})
    health = await db.call("arcade-health", {})
    await backend.close()
    assert re.search(r"no database server answers|shutting down", status["error"])
    assert (status["success"], status["running"]) == (False, False)
    assert health == {
        "healthy": False,
        "error": status["error"],
        "checks": {"container": False, "api": False, "database": False},
    }


async def test_a_database_that_does_not_answer_is_named_and_the_others_are_reported(
    db: Abilities, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, broken = db.backend.read, (await db.call("arcade-db-list", {}))["databases"][0]
    other = f"z{next(names)}"
    await db.call("arcade-db-create", {"name": other})

    async def refuse(database: str, statement: Statement, *, timeout: float) -> Rows:
        if database == broken:
            raise DatabaseError("out of order")
        return await read(database, statement, timeout=timeout)

    monkeypatch.setattr(db.backend, "read", refuse)
    stats = await db.call("arcade-db-stats", {})
    entries = {entry["name"]: entry for entry in stats["databases"]}
    assert entries[broken] == {
        "name": broken,
        "size": 0,
        "sizeFormatted": "unknown",
        "recordCount": "unknown",
        "typeCount": "unknown",
        "error": "out of order",
    }
    assert entries[other]["recordCount"] == 0
    assert stats["totalSize"] == sum(entry["size"] for entry in stats["databases"]) > 0
    assert await db.call("arcade-health", {}) == {
        "healthy": False,
        "error": f"{broken}: out of order",
        "checks": {"container": True, "api": True, "database": False},
    }


async def test_an_engine_without_databases_is_healthy(tmp_path: Path) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as backend:
        db = Abilities(backend, "none")
        checks = {"container": True, "api": True, "database": False}
        assert await db.call("arcade-health", {}) == {"healthy": True, "checks": checks}
        assert await db.call("arcade-db-stats", {}) == {
            "success": True,
            "totalDatabases": 0,
            "databases": [],
            "totalSize": 0,
            "totalSizeFormatted": "0 B",
        }


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KB"),
        (1536, "1.5 KB"),
        (5 * 1024**2 + 12345, "5.01 MB"),
        (3 * 1024**4, "3072 GB"),
    ],
)
def test_a_size_is_written_as_the_field_does(size: int, text: str) -> None:
    assert formatted(size) == text
