"""A database as the earlier TypeScript ability wrote it, statement by statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.ability_search.flows.conftest import DIMENSIONS, PATIENCE, Network, word_vector
from tests.ability_search.flows.stored import services_of

from ability_search.extensions.migration.migration import Migration
from ability_search.extensions.migration.survey import MigrationOptions
from ability_search.index.index_calls import Report

_SCHEMA = (
    "CREATE DOCUMENT TYPE Chunk IF NOT EXISTS",
    "CREATE PROPERTY Chunk.chunkId IF NOT EXISTS STRING",
    "CREATE PROPERTY Chunk.collection IF NOT EXISTS STRING",
    "CREATE PROPERTY Chunk.source IF NOT EXISTS STRING",
    "CREATE PROPERTY Chunk.title IF NOT EXISTS STRING",
    "CREATE PROPERTY Chunk.content IF NOT EXISTS STRING",
    "CREATE PROPERTY Chunk.embedding IF NOT EXISTS ARRAY_OF_FLOATS",
    "CREATE PROPERTY Chunk.tokens IF NOT EXISTS INTEGER",
    "CREATE PROPERTY Chunk.metadata IF NOT EXISTS MAP",
    "CREATE PROPERTY Chunk.chunkIndex IF NOT EXISTS INTEGER",
    "CREATE PROPERTY Chunk.totalChunks IF NOT EXISTS INTEGER",
    "CREATE PROPERTY Chunk.createdAt IF NOT EXISTS DATETIME",
    "CREATE INDEX IF NOT EXISTS ON Chunk (chunkId) UNIQUE",
    "CREATE INDEX IF NOT EXISTS ON Chunk (collection) NOTUNIQUE",
    "CREATE INDEX IF NOT EXISTS ON Chunk (source) NOTUNIQUE",
    "CREATE INDEX IF NOT EXISTS ON Chunk (content) FULL_TEXT",
    "CREATE INDEX IF NOT EXISTS ON Chunk (embedding) LSM_VECTOR"
    f' METADATA {{"dimensions": {DIMENSIONS}, "similarity": "COSINE"}}',
)
_STRICT = ("Chunk.embedding", "Chunk.metadata", "(embedding)")
_BATCH = 50
"""Rows in a transaction of the earlier ability."""


def chunk(collection: str, source: str, index: int, text: str, **other: Any) -> dict[str, Any]:
    """A row; what is ``None`` is left out."""
    row = {
        "chunkId": f"{collection}:{source}:{index}",
        "collection": collection,
        "source": source,
        "title": f"Title of {source}",
        "content": text,
        "embedding": [round(float(each), 6) for each in word_vector(text)],
        "tokens": round(1.3 * len(text.split())),
        "metadata": {"lang": "en"},
        "chunkIndex": index,
        "totalChunks": 1,
        "createdAt": "2025-03-04 05:06:07",
    } | other
    return {name: value for name, value in row.items() if value is not None}


def source(collection: str, name: str, *texts: str, **other: Any) -> list[dict[str, Any]]:
    """The rows of a document."""
    return [
        chunk(collection, name, index, text, **({"totalChunks": len(texts)} | other))
        for index, text in enumerate(texts)
    ]


async def write_legacy(
    network: Network,
    rows: Iterable[Mapping[str, Any]],
    *,
    database: str | None = None,
    strict: bool = True,
) -> None:
    """Write rows as literals in SQL, 50 in a transaction, with the schema if it is missing.

    If it is not strict, embeddings and metadata may be anything, as before it had types for them.
    """
    name = database or network.settings.database.name
    await network.client.invoke("arcade-db-create", {"name": name}, timeout=PATIENCE)
    for statement in _SCHEMA:
        if strict or not any(part in statement for part in _STRICT):
            await command(network, name, statement)
    commands = [_insert(row) for row in rows]
    for start in range(0, len(commands), _BATCH):
        await network.client.invoke(
            "arcade-batch",
            {"database": name, "commands": commands[start : start + _BATCH]},
            timeout=PATIENCE,
        )


async def command(network: Network, database: str, text: str) -> Any:
    """Run a command of the earlier ability."""
    answer = await network.client.invoke(
        "arcade-command", {"database": database, "command": text}, timeout=PATIENCE
    )
    return answer["result"]


def migration_of(
    network: Network, base: Any, *, during: Report | None = None, **options: Any
) -> Migration:
    """Return a migration in this process, over the network's database and model manager.

    Args:
        network: The network.
        base: Directory of files.
        during: Called with the progress.
        options: Those of :class:`.MigrationOptions`.
    """

    async def unheard(*_progress: object) -> None:
        """Nobody listens."""

    @contextmanager
    def progress(_name: str) -> Iterator[Report]:
        yield during or unheard

    return Migration(
        services_of(network, base),
        network.client,
        MigrationOptions(**options),
        progress=progress,
    )


def _insert(row: Mapping[str, Any]) -> str:
    assigned = ", ".join(f"{name} = {_literal(value)}" for name, value in row.items())
    return f"INSERT INTO Chunk SET {assigned}"


def _literal(value: Any) -> str:
    """A literal as the database reads it; the earlier ability wrote those without its mistakes."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    return json.dumps(value)
