"""The layout of the earlier TypeScript ability: one document type for the chunks of everything."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ability_search.store.arcadedb.core import Statement

LEGACY_TYPE = "Chunk"
"""Of its chunks. In the layout of today that is the vertex type which all chunks extend."""
ASIDE_TYPE = "LegacyChunk"
"""Holds them after they were set aside."""

_BUCKET = re.compile(r"[A-Za-z0-9_]+")
_COLUMNS = (
    "@rid AS rid, chunkId, collection, source, title, content, embedding, metadata, chunkIndex,"
    " totalChunks, createdAt"
)


def legacy_types() -> Statement:
    """Rows ``name`` and ``type`` (document, vertex) of those types that chunks may be in."""
    return Statement(
        "SELECT name, type FROM schema:types WHERE name IN :names",
        {"names": [LEGACY_TYPE, ASIDE_TYPE]},
    )


def legacy_sample(chunk_type: str) -> Statement:
    """Rows ``chunkId`` and ``collection`` of some chunks."""
    return Statement(f"SELECT chunkId, collection FROM `{chunk_type}` LIMIT 100", {})


def legacy_size(chunk_type: str) -> Statement:
    """One row: ``n`` chunks."""
    return Statement(f"SELECT count(*) AS n FROM `{chunk_type}`", {})


def legacy_buckets(chunk_type: str) -> Statement:
    """One row: ``buckets``, the names of the files that hold the chunks."""
    return Statement("SELECT buckets FROM schema:types WHERE name = :name", {"name": chunk_type})


def legacy_places(bucket: str, *, after: str | None, limit: int) -> Statement:
    """Rows ``rid``: where the chunks of a bucket are, in order, behind the place ``after``.

    Raises:
        ValueError: if that is no name of a bucket; it cannot be quoted.
    """
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"not the name of a bucket: {bucket!r}")
    behind = "" if after is None else " WHERE @rid > :floor"
    return Statement(
        f"SELECT @rid AS rid FROM BUCKET:{bucket}{behind} ORDER BY @rid LIMIT {limit:d}",
        {} if after is None else {"floor": after},
    )


def legacy_rows(chunk_type: str, rids: Sequence[str]) -> Statement:
    """Chunks by their places, in no order."""
    return Statement(
        f"SELECT {_COLUMNS} FROM `{chunk_type}` WHERE @rid IN :rids", {"rids": list(rids)}
    )


def legacy_sources(chunk_type: str, rids: Sequence[str]) -> Statement:
    """The sources of the chunks at these places, in no order."""
    return Statement(f"SELECT source FROM `{chunk_type}` WHERE @rid IN :rids", {"rids": list(rids)})


def legacy_totals(chunk_type: str) -> Statement:
    """One row: ``n`` chunks, and the ``characters`` and ``numbers`` of texts and embeddings."""
    return Statement(
        "SELECT count(*) AS n, sum(content.length()) AS characters,"
        f" sum(embedding.size()) AS numbers FROM `{chunk_type}`",
        {},
    )


def create_aside() -> Statement:
    """Create the type for chunks that are set aside; harmless where it exists."""
    return Statement(
        f"""
        CREATE DOCUMENT TYPE {ASIDE_TYPE} IF NOT EXISTS BUCKETS 1;
        CREATE PROPERTY {ASIDE_TYPE}.asideOf IF NOT EXISTS STRING;
        CREATE INDEX IF NOT EXISTS ON {ASIDE_TYPE} (asideOf) NOTUNIQUE;
        """,
        {},
    )


def set_aside(rids: Sequence[str]) -> Statement:
    """Copy the chunks at these places; those that were copied before are left out.

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
    """Drop the chunks that were set aside, and put the type of today in the place of theirs."""
    return Statement(
        f"DROP TYPE {LEGACY_TYPE} UNSAFE; CREATE VERTEX TYPE {LEGACY_TYPE} IF NOT EXISTS;", {}
    )


def drop_legacy(chunk_type: str) -> Statement:
    """Drop the chunks of the earlier ability."""
    return Statement(f"DROP TYPE `{chunk_type}` UNSAFE", {})
