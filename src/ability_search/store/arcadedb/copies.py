"""Whole collections, on their way out."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.store.arcadedb.core import Statement, source_type


def source_places(chunk_type: str, *, after: str, limit: int) -> Statement:
    """Select the record ids of Source records greater than ``after``, in order, at most ``limit``.

    Rows ``source`` and ``rid``.
    """
    return Statement(
        f"SELECT source, @rid AS rid FROM `{source_type(chunk_type)}` WHERE source > :floor"
        f" ORDER BY source LIMIT {limit:d}",
        {"floor": after},
    )


def source_records_at(chunk_type: str, rids: Sequence[str]) -> Statement:
    """Whole Source records by their ``rid``, in no order."""
    return Statement(
        f"SELECT FROM `{source_type(chunk_type)}` WHERE @rid IN :rids", {"rids": list(rids)}
    )


def source_chunks(chunk_type: str, sources: Sequence[str], *, first: int, end: int) -> Statement:
    """Whole chunks ``first`` to ``end - 1`` of each of ``sources``, in no order."""
    return Statement(
        f"SELECT FROM `{chunk_type}` WHERE source IN :sources"
        f" AND chunkIndex >= {first:d} AND chunkIndex < {end:d}",
        {"sources": list(sources)},
    )
