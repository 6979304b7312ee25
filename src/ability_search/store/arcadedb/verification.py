"""Verification of a generation against the one it was made from."""

from __future__ import annotations

from ability_search.store.arcadedb.core import Statement


def check_vectors(chunk_type: str, *, dimensions: int, after: str, limit: int) -> Statement:
    """Check the vectors of at most ``limit`` chunks greater than ``after``, in order.

    Returns one map: ``last`` (the last chunkId, null if there was none), ``checked`` and
    ``unfit`` chunks: those whose vector has other dimensions, is not finite or has no unit
    length.
    """
    vector = "ifnull(ifnull(embedding, spareEmbedding), [0.0])"
    return Statement(
        f"""
        LET page = SELECT chunkId, vectorDimension({vector}) AS size,
            vectorMagnitude({vector}) AS norm FROM `{chunk_type}`
            WHERE chunkId > :floor ORDER BY chunkId LIMIT {limit:d};
        LET fit = SELECT count(*) AS n FROM (SELECT expand($page))
            WHERE size = :dimensions AND norm > 0.99 AND norm < 1.01;
        LET last = SELECT max(chunkId) AS id FROM (SELECT expand($page));
        RETURN {{'last': $last[0].id, 'checked': $page.size(), 'unfit': $page.size() - $fit[0].n}};
        """,
        {"floor": after, "dimensions": dimensions},
    )


def some_chunks(chunk_type: str, *, newest: int, others: int, after: str) -> Statement:
    """Select indexed chunks with their terms.

    Args:
        chunk_type: Their generation.
        newest: Number of those stored last.
        others: Number of those whose ``vectorKey`` is at least ``after``.
        after: 32 hexadecimal digits; random ones give a random choice.

    Returns one map: ``newest`` and ``others``, rows ``chunkId, terms, weights``.
    """
    columns = f"SELECT chunkId, terms, weights FROM `{chunk_type}` WHERE duplicateOf IS NULL"
    return Statement(
        f"""
        LET newest = {columns} ORDER BY @rid DESC LIMIT {newest:d};
        LET others = {columns} AND vectorKey >= :least LIMIT {others:d};
        RETURN {{'newest': $newest, 'others': $others}};
        """,
        {"least": after},
    )


def sample_chunks(chunk_type: str, *, limit: int) -> Statement:
    """Select a random choice of indexed chunks: rows ``chunkId, embedding, terms, weights``."""
    return Statement(
        f"SELECT chunkId, embedding, terms, weights FROM `{chunk_type}`"
        f" WHERE duplicateOf IS NULL AND vectorKey >= '' LIMIT {limit:d}",
        {},
    )
