"""Vectors that are stored already: where they may be, and which there are."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.statements.core import Statement

_COLUMNS = "type, aspects, dimensions"


def vector_places(model: str, record: str, *, limit: int) -> Statement:
    """Collections whose chunks name what their vectors were made from.

    Args:
        model: What made the vectors.
        record: The collection that wants some, which may be one being built.
        limit: Most other collections, those first that were changed last.

    Returns one map: ``own``, ``live`` (where another generation is being built) and ``others``,
    rows ``type, aspects, dimensions``.
    """
    wanted = f"SELECT {_COLUMNS} FROM Collection WHERE model = :model AND keyed = true"
    return Statement(
        f"""
        LET own = {wanted} AND name = :record;
        LET live = {wanted} AND name = :live AND name <> :record;
        LET others = {wanted} AND name NOT IN [:record, :live] AND chunks > 0
            ORDER BY updatedAt DESC LIMIT {limit:d};
        RETURN {{'own': $own, 'live': $live, 'others': $others}};
        """,
        {"model": model, "record": record, "live": record.partition("@")[0]},
    )


def known_vectors(chunk_types: Sequence[str], keys: Sequence[str]) -> Statement:
    """One vector for each of these keys that a type holds.

    Returns one map: ``v0``, ``v1``, ..., for each type rows ``vectorKey, vector``.
    """
    parts = [
        f"""
        LET k{place} = SELECT vectorKey, min(chunkId) AS chunkId FROM `{chunk_type}`
            WHERE vectorKey IN :keys GROUP BY vectorKey;
        LET v{place} = SELECT vectorKey, ifnull(embedding, spareEmbedding) AS vector
            FROM `{chunk_type}` WHERE chunkId IN $k{place}.chunkId;
        """
        for place, chunk_type in enumerate(chunk_types)
    ]
    found = ", ".join(f"'v{place}': $v{place}" for place in range(len(chunk_types)))
    return Statement(f"{''.join(parts)} RETURN {{{found}}};", {"keys": list(keys)})
