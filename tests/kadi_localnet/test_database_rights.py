"""The rights on an ArcadeDB server that docs/storage.md names: enough for a worker, no more."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.contract.stored_records import collection
from tests.database_servers import PASSWORD, database_server

from ability_search.store.arcadedb.database_schema import (
    create_generation,
    create_parts,
    schema,
)
from ability_search.store.records import Replacement, SourceLink
from kadi_localnet.database.backend import RUN, DatabaseError, Statement
from kadi_localnet.database.remote_server import HttpDatabases

pytestmark = pytest.mark.engine

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "storage.md"
USER = {"name": "search", "password": PASSWORD, "databases": {"d": ["search"]}}


def documented_groups() -> str:
    [block] = re.findall(
        r'```json title="config/server-groups.json"\n(.*?)```', DOCUMENT.read_text(), re.DOTALL
    )
    return str(block)


@pytest.fixture
async def databases(tmp_path: Path) -> AsyncIterator[HttpDatabases]:
    """What the documented user of a server may do; the database ``d`` is there."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "server-groups.json").write_text(documented_groups())
    with database_server(tmp_path) as (url, _):
        operator = HttpDatabases([url], user="root", password=PASSWORD)
        backend = HttpDatabases([url], user="search", password=PASSWORD)
        try:
            await operator.create("d", timeout=20)
            async with httpx.AsyncClient(auth=("root", PASSWORD)) as client:
                command = {"command": f"create user {json.dumps(USER)}"}
                created = await client.post(f"{url}/api/v1/server", json=command)
                assert created.status_code == 200, created.text
            yield backend
        finally:
            await operator.close()
            await backend.close()


async def test_the_documented_rights_are_enough_for_a_worker_and_no_more(
    databases: HttpDatabases,
) -> None:
    async def run(text: str, language: str = "sql") -> None:
        await databases.write("d", [Statement(text, language)], timeout=20)

    link = SourceLink("a", "b", "cites", 1.0)
    parts = create_parts(collection(type="Chunk_x"), Replacement(["a"], links=[link]), kinds=True)
    assert parts is not None
    for script, _ in (
        schema(),
        create_generation("Chunk_x", dimensions=4),
        parts,
    ):
        await run(script, "sqlscript")
    await run(f"SET GLOBAL {RUN} = 'a word'")
    await run("INSERT INTO `Chunk_x` SET chunkId = 'a'")
    await run("UPDATE `Chunk_x` SET source = 'b'")
    await run("DELETE FROM `Chunk_x`")
    await run("ALTER TYPE Chunk CUSTOM note = 'x'")
    assert (await databases.size("d", timeout=20) or 0) > 0
    for text in (
        "BACKUP DATABASE",
        "EXPORT DATABASE",
        "IMPORT DATABASE file:///etc/hostname",
        "ALTER DATABASE `arcadedb.opencypher.loadCsv.allowFileUrls` true",
        "DEFINE FUNCTION f.js 'return 1' LANGUAGE js",
        "CREATE TRIGGER t BEFORE CREATE ON TYPE Record EXECUTE JAVA 'java.lang.Thread'",
    ):
        with pytest.raises(DatabaseError, match="not allowed to update security"):
            await run(text)
    with pytest.raises(DatabaseError, match="rejected the user"):
        await databases.create("other", timeout=20)
