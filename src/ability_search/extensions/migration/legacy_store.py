"""The data of the earlier TypeScript ability: one document type with the chunks of everything."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ability_search.errors import StatementRefused, TooLarge
from ability_search.store.arcadedb.core import Scripts

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


class LegacyStore:
    """A database of the earlier ability.

    Its rows are as that ability wrote them: any column may be missing or of any type. The methods
    raise :class:`.DatabaseUnavailable` if the database did not answer.

    Args:
        scripts: Runs scripts on the database.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def chunk_type(self) -> str | None:
        """Return the type that holds the chunks; ``None`` if there is none.

        While they are being copied, it is the original type.
        """
        names = [LEGACY_TYPE, ASIDE_TYPE]
        try:
            types = await self._scripts.read(
                "SELECT name FROM schema:types WHERE name IN :names AND type = 'document'",
                {"names": names},
            )
        except StatementRefused as exc:
            if exc.reason != "missing_database":
                raise
            return None
        present = {row["name"] for row in types}
        for name in names:
            if name in present and await self._has_chunks(name):
                return name
        return None

    async def _has_chunks(self, name: str) -> bool:
        """Return whether a type holds chunks of the earlier ability, or nothing."""
        found = await self._scripts.read(f"SELECT chunkId, collection FROM `{name}` LIMIT 100", {})
        return not found or any(row.get("chunkId") and row.get("collection") for row in found)

    async def totals(self, chunk_type: str) -> Mapping[str, int]:
        """Return the number ``n`` of chunks and the sizes of their texts and embeddings."""
        (row,) = await self._scripts.read(
            "SELECT count(*) AS n, sum(content.length()) AS characters,"
            f" sum(embedding.size()) AS numbers FROM `{chunk_type}`",
            {},
        )
        return {name: row[name] or 0 for name in ("n", "characters", "numbers")}

    async def places(self, chunk_type: str, *, most: int) -> AsyncIterator[list[str]]:
        """Yield the record ids of the chunks, at most ``most`` at a time.

        Raises:
            ValueError: if the name of a bucket cannot be written in a statement.
        """
        (row,) = await self._scripts.read(
            "SELECT buckets FROM schema:types WHERE name = :name", {"name": chunk_type}
        )
        for bucket in row["buckets"]:
            if not _BUCKET.fullmatch(bucket):
                raise ValueError(f"not the name of a bucket: {bucket!r}")
            last = "#-1:-1"
            while page := await self._scripts.read(
                f"SELECT @rid AS rid FROM BUCKET:{bucket} WHERE @rid > :last"
                f" ORDER BY @rid LIMIT {_PLACES}",
                {"last": last},
            ):
                rids = [each["rid"] for each in page]
                for start in range(0, len(rids), most):
                    yield rids[start : start + most]
                last = rids[-1]

    async def rows(self, chunk_type: str, rids: Sequence[str]) -> list[dict[str, Any]]:
        """Return rows by record id, in any order."""
        statement = f"SELECT {_COLUMNS} FROM `{chunk_type}` WHERE @rid IN :rids"
        try:
            return list(await self._scripts.read(statement, {"rids": list(rids)}))
        except TooLarge:
            if len(rids) < 2:
                raise
        middle = len(rids) // 2
        first = await self.rows(chunk_type, rids[:middle])
        return first + await self.rows(chunk_type, rids[middle:])

    async def create_aside(self) -> None:
        """Create the type for copies if it does not exist."""
        await self._scripts.write(
            f"""
            CREATE DOCUMENT TYPE {ASIDE_TYPE} IF NOT EXISTS BUCKETS 1;
            CREATE PROPERTY {ASIDE_TYPE}.asideOf IF NOT EXISTS STRING;
            CREATE INDEX IF NOT EXISTS ON {ASIDE_TYPE} (asideOf) NOTUNIQUE;
            """,
            {},
        )

    async def copy_aside(self, rids: Sequence[str]) -> None:
        """Copy chunks by record id; skip those that were copied before."""
        await self._scripts.write(
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

    async def make_room(self) -> None:
        """Drop the original chunks, and create today's type in their place."""
        await self._scripts.write(
            f"DROP TYPE {LEGACY_TYPE} UNSAFE; CREATE VERTEX TYPE {LEGACY_TYPE} IF NOT EXISTS;", {}
        )

    async def drop(self, chunk_type: str) -> None:
        """Drop the chunks."""
        await self._scripts.write(f"DROP TYPE `{chunk_type}` UNSAFE", {})
