"""The data of the earlier TypeScript ability: one document type with the chunks of everything."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ability_search.errors import StatementRefused
from ability_search.store.arcadedb.core import Scripts, Statement
from ability_search.store.halves import in_halves

LEGACY_TYPE = "Chunk"
"""Its type of chunks; in today's layout the vertex type that all types of chunks extend."""
ASIDE_TYPE = "LegacyChunk"
"""Type of the copies that make room for today's layout."""

_BUCKET = re.compile(r"[A-Za-z0-9_]+")
_COLUMNS = (
    "@rid AS rid, chunkId, collection, source, title, content, embedding, metadata, chunkIndex,"
    " totalChunks, createdAt"
)
_PLACES = 10_000
"""Record ids read at a time; the further back a page begins, the longer it takes to find."""


class LegacySql:
    """Data of the earlier ability, see :class:`.migration.LegacyStore`.

    Args:
        scripts: Runs scripts on its database.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def chunk_type(self) -> str | None:
        try:
            found = await self._scripts.read(*legacy_types())
        except StatementRefused as exc:
            if exc.reason != "missing_database":
                raise
            return None
        documents = {row["name"] for row in found if row["type"] == "document"}
        for name in (LEGACY_TYPE, ASIDE_TYPE):
            if name in documents and await self._has_chunks(name):
                return name
        return None

    async def _has_chunks(self, name: str) -> bool:
        """Return whether a type holds chunks of the earlier ability, or nothing."""
        found = await self._scripts.read(*legacy_sample(name))
        return not found or any(row.get("chunkId") and row.get("collection") for row in found)

    def in_the_way(self, chunk_type: str) -> bool:
        return chunk_type == LEGACY_TYPE

    async def size(self, chunk_type: str) -> int:
        (row,) = await self._scripts.read(*legacy_size(chunk_type))
        return int(row["n"])

    async def places(self, chunk_type: str, *, most: int) -> AsyncIterator[list[str]]:
        (row,) = await self._scripts.read(*legacy_buckets(chunk_type))
        for bucket in row["buckets"]:
            after: str | None = None
            while page := await self._scripts.read(
                *legacy_places(bucket, after=after, limit=_PLACES)
            ):
                rids = [each["rid"] for each in page]
                for start in range(0, len(rids), most):
                    yield rids[start : start + most]
                after = rids[-1]

    async def rows(self, chunk_type: str, rids: Sequence[str]) -> list[dict[str, Any]]:
        async def read(part: Sequence[str]) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await self._scripts.read(*legacy_rows(chunk_type, part))
            return found

        return await in_halves(read, rids)

    async def sources(self, chunk_type: str, rids: Sequence[str]) -> list[str]:
        found = await self._scripts.read(*legacy_sources(chunk_type, rids))
        return [row["source"] for row in found]

    async def create_aside(self) -> str:
        await self._scripts.write(*create_aside())
        return ASIDE_TYPE

    async def copy_aside(self, rids: Sequence[str]) -> None:
        await self._scripts.write(*set_aside(rids))

    async def totals(self, chunk_type: str) -> Mapping[str, int]:
        (row,) = await self._scripts.read(*legacy_totals(chunk_type))
        return {name: row[name] or 0 for name in ("n", "characters", "numbers")}

    async def make_room(self) -> None:
        await self._scripts.write(*make_room())

    async def drop(self, chunk_type: str) -> None:
        await self._scripts.write(*drop_legacy(chunk_type))


def legacy_types() -> Statement:
    """Select ``name`` and ``type`` (document, vertex) of the types that may hold chunks."""
    return Statement(
        "SELECT name, type FROM schema:types WHERE name IN :names",
        {"names": [LEGACY_TYPE, ASIDE_TYPE]},
    )


def legacy_sample(chunk_type: str) -> Statement:
    """Select ``chunkId`` and ``collection`` of some chunks."""
    return Statement(f"SELECT chunkId, collection FROM `{chunk_type}` LIMIT 100", {})


def legacy_size(chunk_type: str) -> Statement:
    """Count the chunks: one row ``n``."""
    return Statement(f"SELECT count(*) AS n FROM `{chunk_type}`", {})


def legacy_buckets(chunk_type: str) -> Statement:
    """Select ``buckets``, the names of the files that hold the chunks: one row."""
    return Statement("SELECT buckets FROM schema:types WHERE name = :name", {"name": chunk_type})


def legacy_places(bucket: str, *, after: str | None, limit: int) -> Statement:
    """Select ``rid`` of the chunks of a bucket, in order, greater than ``after``.

    Raises:
        ValueError: if ``bucket`` is not the name of a bucket; it cannot be quoted.
    """
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"not the name of a bucket: {bucket!r}")
    behind = "" if after is None else " WHERE @rid > :floor"
    return Statement(
        f"SELECT @rid AS rid FROM BUCKET:{bucket}{behind} ORDER BY @rid LIMIT {limit:d}",
        {} if after is None else {"floor": after},
    )


def legacy_rows(chunk_type: str, rids: Sequence[str]) -> Statement:
    """Select chunks by record id, in any order."""
    return Statement(
        f"SELECT {_COLUMNS} FROM `{chunk_type}` WHERE @rid IN :rids", {"rids": list(rids)}
    )


def legacy_sources(chunk_type: str, rids: Sequence[str]) -> Statement:
    """Select the sources of chunks by record id, in any order."""
    return Statement(f"SELECT source FROM `{chunk_type}` WHERE @rid IN :rids", {"rids": list(rids)})


def legacy_totals(chunk_type: str) -> Statement:
    """Select one row: ``n`` chunks, ``characters`` of their texts, ``numbers`` of embeddings."""
    return Statement(
        "SELECT count(*) AS n, sum(content.length()) AS characters,"
        f" sum(embedding.size()) AS numbers FROM `{chunk_type}`",
        {},
    )


def create_aside() -> Statement:
    """Create the type for copies; harmless if it exists."""
    return Statement(
        f"""
        CREATE DOCUMENT TYPE {ASIDE_TYPE} IF NOT EXISTS BUCKETS 1;
        CREATE PROPERTY {ASIDE_TYPE}.asideOf IF NOT EXISTS STRING;
        CREATE INDEX IF NOT EXISTS ON {ASIDE_TYPE} (asideOf) NOTUNIQUE;
        """,
        {},
    )


def set_aside(rids: Sequence[str]) -> Statement:
    """Copy chunks by record id; those that were copied before are left out.

    Returns one map: ``copied`` chunks.
    """
    return Statement(
        f"""
        BEGIN;
        LET known = SELECT asideOf FROM {ASIDE_TYPE} WHERE asideOf IN :rids;
        LET i = INSERT INTO {ASIDE_TYPE} FROM (
            SELECT *, @rid.asString() AS asideOf FROM {LEGACY_TYPE}
            WHERE @rid IN :rids AND @rid.asString() NOT IN $known.asideOf);
        COMMIT;
        RETURN {{'copied': $i.size()}};
        """,
        {"rids": list(rids)},
    )


def make_room() -> Statement:
    """Drop the chunks that were copied, and create today's type in their place."""
    return Statement(
        f"DROP TYPE {LEGACY_TYPE} UNSAFE; CREATE VERTEX TYPE {LEGACY_TYPE} IF NOT EXISTS;", {}
    )


def drop_legacy(chunk_type: str) -> Statement:
    """Drop the chunks of the earlier ability."""
    return Statement(f"DROP TYPE `{chunk_type}` UNSAFE", {})
