"""Vectors that are stored already: where they may be, and which there are."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.store.arcadedb.core import Statement, rows_together

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
    queries = {
        "own": f"{wanted} AND name = :record",
        "live": f"{wanted} AND name = :live AND name <> :record",
        "others": f"{wanted} AND name NOT IN [:record, :live] AND chunks > 0"
        f" ORDER BY updatedAt DESC LIMIT {limit:d}",
    }
    return Statement(
        rows_together(queries, queries),
        {"model": model, "record": record, "live": record.partition("@")[0]},
    )


def known_vectors(chunk_types: Sequence[str], keys: Sequence[str]) -> Statement:
    """One vector for each of these keys that a type holds.

    Returns one map: ``v0``, ``v1``, ..., for each type rows ``vectorKey, vector``.
    """
    queries = {}
    for place, chunk_type in enumerate(chunk_types):
        queries[f"k{place}"] = (
            f"SELECT vectorKey, min(chunkId) AS chunkId FROM `{chunk_type}`"
            " WHERE vectorKey IN :keys GROUP BY vectorKey"
        )
        queries[f"v{place}"] = (
            "SELECT vectorKey, ifnull(embedding, spareEmbedding) AS vector"
            f" FROM `{chunk_type}` WHERE chunkId IN $k{place}.chunkId"
        )
    found = [f"v{place}" for place in range(len(chunk_types))]
    return Statement(rows_together(queries, found), {"keys": list(keys)})
