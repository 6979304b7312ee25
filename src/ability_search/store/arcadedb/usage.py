"""What agents were shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ability_search.store.arcadedb.core import Statement


def uses(agent: str, chunk_ids: Sequence[str]) -> Statement:
    """Select how often each of these chunks was returned to an agent.

    Rows ``chunkId, uses``; none for those it never was shown.
    """
    return Statement(
        "SELECT chunkId, uses FROM Usage WHERE agent = :agent AND chunkId IN :ids",
        {"agent": agent, "ids": list(chunk_ids)},
    )


def count_uses(agent: str, shown: Sequence[tuple[str, str]], *, now: int) -> Statement:
    """Count chunks as shown to an agent once more.

    Args:
        agent: The agent.
        shown: Collection and chunkId of each; what is in a collection that is gone by now is not
            counted.
        now: Epoch milliseconds.
    """
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
        COMMIT;
        """,
        {
            "agent": agent,
            "collections": sorted({collection for collection, _ in shown}),
            "shown": [
                {"collection": collection, "chunkId": chunk_id} for collection, chunk_id in shown
            ],
            "now": now,
        },
    )


def agents(collection: str) -> Statement:
    """The agents that were shown anything of a collection; rows ``agent``."""
    return Statement(
        "SELECT agent FROM Usage WHERE collection = :collection GROUP BY agent ORDER BY agent",
        {"collection": collection},
    )


def uses_of(agent: str, collection: str, *, after: str, limit: int) -> Statement:
    """Select the chunks of a collection that were returned to an agent, at most ``limit`` rows.

    Args:
        agent: The agent.
        collection: The collection.
        after: The last chunkId of the page before; empty for the first page.
        limit: Rows.
    """
    # The chunkIds of a collection begin with its name and a colon, which a semicolon follows.
    return Statement(
        "SELECT FROM Usage WHERE agent = :agent AND chunkId > :floor AND chunkId < :ceiling"
        f" ORDER BY chunkId LIMIT {limit:d}",
        {"agent": agent, "floor": after or f"{collection}:", "ceiling": f"{collection};"},
    )


def delete_uses(collection: str) -> Statement:
    """Forget who was shown what of a collection."""
    return Statement(
        "BEGIN; DELETE FROM Usage WHERE collection = :collection; COMMIT;",
        {"collection": collection},
    )


def put_uses(rows: Sequence[Mapping[str, Any]]) -> Statement:
    """Set how often an agent was shown a chunk; rows as :func:`uses_of` gives them."""
    return Statement(
        """
        BEGIN;
        FOREACH ($row IN :rows) {
            UPDATE Usage SET collection = $row.collection, uses = $row.uses, lastAt = $row.lastAt
                UPSERT WHERE agent = $row.agent AND chunkId = $row.chunkId;
        }
        COMMIT;
        """,
        {"rows": [dict(row) for row in rows]},
    )
