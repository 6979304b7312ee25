"""The database of the earlier ability, read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ability_search.artifacts.artifact_reader import Row
from ability_search.errors import StatementRefused, TooLarge
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.arcadedb import ASIDE_TYPE, LEGACY_TYPE

_PLACES = 10_000
"""Places read at a time: finding the first one takes the longer the farther back it is."""


class OldDatabase:
    """What the earlier ability wrote.

    Args:
        store: The database that it wrote to.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def chunk_type(self) -> str | None:
        """The type that holds its chunks; ``None`` if the database is none of that ability.

        While they are being set aside it is the one that they are copied from.
        """
        try:
            rows = await self.store.read(*arcadedb.legacy_types())
        except StatementRefused as exc:
            if exc.reason != "missing_database":
                raise
            return None
        documents = {row["name"] for row in rows if row["type"] == "document"}
        for name in (LEGACY_TYPE, ASIDE_TYPE):
            if name in documents and await self._is_chunks(name):
                return name
        return None

    async def _is_chunks(self, name: str) -> bool:
        """Return whether a type holds chunks, and nothing that somebody else calls so."""
        rows = await self.store.read(*arcadedb.legacy_sample(name))
        return not rows or any(row.get("chunkId") and row.get("collection") for row in rows)

    async def size(self, chunk_type: str) -> int:
        """Return the number of chunks."""
        (row,) = await self.store.read(*arcadedb.legacy_size(chunk_type))
        return int(row["n"])

    async def totals(self, chunk_type: str) -> dict[str, Any]:
        """Return ``n`` chunks and the sums of their sizes, by which two types are compared."""
        (row,) = await self.store.read(*arcadedb.legacy_totals(chunk_type))
        return {name: row[name] or 0 for name in ("n", "characters", "numbers")}

    async def places(self, chunk_type: str, *, most: int) -> AsyncIterator[list[str]]:
        """Yield the record ids of the chunks, at most ``most`` at a time."""
        (row,) = await self.store.read(*arcadedb.legacy_buckets(chunk_type))
        for bucket in row["buckets"]:
            floor: str | None = None
            while page := await self.store.read(
                *arcadedb.legacy_places(bucket, after=floor, limit=_PLACES)
            ):
                rids = [each["rid"] for each in page]
                for start in range(0, len(rids), most):
                    yield rids[start : start + most]
                floor = rids[-1]

    async def rows(self, chunk_type: str, rids: Sequence[str]) -> list[Row]:
        """The rows at some places, in no order; in parts, where they do not fit into a message."""
        try:
            found: list[Row] = await self.store.read(*arcadedb.legacy_rows(chunk_type, rids))
        except TooLarge:
            if len(rids) == 1:
                raise
            middle = len(rids) // 2
            halves = rids[:middle], rids[middle:]
            return [row for half in halves for row in await self.rows(chunk_type, half)]
        return found

    async def sources(self, chunk_type: str, rids: Sequence[str]) -> list[str]:
        """The sources of the chunks at some places, in no order."""
        rows = await self.store.read(*arcadedb.legacy_sources(chunk_type, rids))
        return [row["source"] for row in rows]
