"""Statements that count how often agents were shown chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ability_search.errors import StatementRefused
from ability_search.retry import growing, retry
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.database import Database
from ability_search.store.records import Use

_ATTEMPTS = 4


class UsageSql(Database):
    """Counts of use, see :class:`ability_search.store.port.UsageStore`."""

    async def uses(self, agent: str, chunk_ids: Sequence[str]) -> dict[str, Use]:
        rows = await self.rows(uses(agent, chunk_ids))
        return {row["chunkId"]: _use(row) for row in rows}

    async def count_uses(
        self,
        agent: str,
        shown: Sequence[tuple[str, str]],
        *,
        marks: Mapping[str, bool] | None = None,
        now: int,
    ) -> None:
        """Increment the counts of chunks; retry on conflicts with another worker."""
        await retry(
            partial(self.write, count_uses(agent, shown, marks=marks or {}, now=now)),
            when=_in_conflict,
            attempts=_ATTEMPTS,
            pause=growing(0.05, longest=1),
        )

    async def agents(self, collection: str) -> list[str]:
        return [row["agent"] for row in await self.rows(agents(collection))]

    async def uses_of(self, agent: str, collection: str, *, after: str, limit: int) -> list[Use]:
        rows = await self.rows(uses_of(agent, collection, after=after, limit=limit))
        return list(map(_use, rows))

    async def put_uses(self, uses: Sequence[Use]) -> None:
        rows = [
            {
                "agent": each.agent,
                "collection": each.collection,
                "chunkId": each.chunk_id,
                "uses": each.uses,
                "lastAt": each.last_at,
                "useful": each.useful,
            }
            for each in uses
        ]
        await self.write(put_uses(rows))

    async def delete_uses(self, collection: str) -> None:
        await self.write(delete_uses(collection))


def _use(row: Mapping[str, Any]) -> Use:
    return Use(
        row["agent"],
        row["collection"],
        row["chunkId"],
        row["uses"],
        row["lastAt"],
        row.get("useful"),
    )


def _in_conflict(exc: BaseException) -> bool:
    # In both cases the transaction was rolled back and nothing was counted.
    return isinstance(exc, StatementRefused) and exc.reason in ("conflict", "duplicate")


def uses(agent: str, chunk_ids: Sequence[str]) -> Statement:
    """Select the use of some chunks by an agent; chunks without use have no row."""
    return Statement(
        "SELECT FROM Usage WHERE agent = :agent AND chunkId IN :ids",
        {"agent": agent, "ids": list(chunk_ids)},
    )


def count_uses(
    agent: str, shown: Sequence[tuple[str, str]], *, marks: Mapping[str, bool], now: int
) -> Statement:
    """Increment the counts of chunks that were shown to an agent, and set its marks.

    Args:
        agent: The agent.
        shown: Collection and chunkId of each; deleted collections are skipped.
        marks: Whether chunks are useful, by chunkId.
        now: Epoch milliseconds.
    """
    marked = [
        {"collection": chunk_id.partition(":")[0], "chunkId": chunk_id, "useful": useful}
        for chunk_id, useful in marks.items()
    ]
    collections = {collection for collection, _ in shown} | {row["collection"] for row in marked}
    return Statement(
        """
        BEGIN;
        LET c = SELECT name FROM Collection WHERE name IN :collections;
        FOREACH ($hit IN :shown) {
            IF ($hit.collection IN $c.name) {
                UPDATE Usage SET collection = $hit.collection, uses = ifnull(uses, 0) + 1,
                    lastAt = :now UPSERT WHERE agent = :agent AND chunkId = $hit.chunkId;
            }
        }
        FOREACH ($mark IN :marked) {
            IF ($mark.collection IN $c.name) {
                UPDATE Usage SET collection = $mark.collection, uses = ifnull(uses, 0),
                    lastAt = :now, useful = $mark.useful
                    UPSERT WHERE agent = :agent AND chunkId = $mark.chunkId;
            }
        }
        COMMIT;
        """,
        {
            "agent": agent,
            "collections": sorted(collections),
            "marked": marked,
            "shown": [
                {"collection": collection, "chunkId": chunk_id} for collection, chunk_id in shown
            ],
            "now": now,
        },
    )


def agents(collection: str) -> Statement:
    """Select the agents that were shown chunks of a collection; rows ``agent``."""
    return Statement(
        "SELECT agent FROM Usage WHERE collection = :collection GROUP BY agent ORDER BY agent",
        {"collection": collection},
    )


def uses_of(agent: str, collection: str, *, after: str, limit: int) -> Statement:
    """Select the chunks of a collection that were shown to an agent, at most ``limit`` rows.

    Args:
        agent: The agent.
        collection: The collection.
        after: The last chunkId of the page before; empty for the first page.
        limit: Maximum number of rows.
    """
    # A chunkId begins with the collection and a colon; the next character is the semicolon.
    return Statement(
        "SELECT FROM Usage WHERE agent = :agent AND chunkId > :floor AND chunkId < :ceiling"
        f" ORDER BY chunkId LIMIT {limit:d}",
        {"agent": agent, "floor": after or f"{collection}:", "ceiling": f"{collection};"},
    )


def delete_uses(collection: str) -> Statement:
    """Delete all counts of a collection."""
    return Statement(
        "BEGIN; DELETE FROM Usage WHERE collection = :collection; COMMIT;",
        {"collection": collection},
    )


def put_uses(rows: Sequence[Mapping[str, Any]]) -> Statement:
    """Set how often an agent was shown a chunk; rows as in :func:`uses_of`."""
    return Statement(
        """
        BEGIN;
        FOREACH ($row IN :rows) {
            UPDATE Usage SET collection = $row.collection, uses = $row.uses, lastAt = $row.lastAt,
                useful = $row.useful UPSERT WHERE agent = $row.agent AND chunkId = $row.chunkId;
        }
        COMMIT;
        """,
        {"rows": [dict(row) for row in rows]},
    )
