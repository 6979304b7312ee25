"""Statements for an overview of a collection: chunk sizes, indexing times, samples of vectors.

Derived kinds are excluded.
"""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.collection import Collection
from ability_search.documents import KINDS
from ability_search.store.arcadedb.core import Statement, source_type
from ability_search.store.arcadedb.database import Database
from ability_search.store.arcadedb.record_sql import read_of
from ability_search.store.records import (
    ChunkVector,
    MapPoint,
    OverviewAnswer,
    OverviewRequest,
    Read,
)

_TITLE = 120
_EXCERPT = 160
"""Maximum characters of a title and of an excerpt."""
_SAMPLED = "(SELECT expand(rid) FROM (SELECT expand($sample)))"
"""The chunks of a sample, in its order."""


class OverviewSql(Database):
    """Overviews of collections, see :class:`.port.CopyStore`."""

    async def overview(
        self, collection: Collection, request: OverviewRequest
    ) -> Read[OverviewAnswer]:
        answer = await self.generation_read(
            collection.type,
            overview(
                collection.name,
                collection.type,
                width=request.bin_width,
                counted=request.sample,
                period=request.period,
                vectors=request.vectors,
                indexed=request.indexed,
            ),
        )
        return read_of(
            answer,
            OverviewAnswer(
                sizes={int(row["least"]): int(row["chunks"]) for row in answer.get("sizes", ())},
                periods=[
                    (int(row["start"]), row["sources"], row["chunks"])
                    for row in answer.get("periods", ())
                ],
                vectors=[row["embedding"] for row in answer.get("vectors", ())],
            ),
        )

    async def map_points(
        self,
        collection: Collection,
        axes: Sequence[Sequence[float]],
        *,
        limit: int,
        indexed: int,
    ) -> Read[list[MapPoint]]:
        answer = await self.generation_read(
            collection.type,
            map_points(collection.name, collection.type, axes, limit=limit, indexed=indexed),
        )
        points = [
            MapPoint(
                row["chunkId"],
                row["source"],
                row["title"],
                row["excerpt"],
                [row[f"axis{place}"] for place in range(len(axes))],
            )
            for row in answer["points"]
        ]
        return read_of(answer, points)

    async def chunk_vectors(self, generation: str, *, after: str, limit: int) -> list[ChunkVector]:
        found = await self.generation_read(
            generation, chunk_vectors(generation, after=after, limit=limit)
        )
        return [
            ChunkVector(
                row["chunkId"],
                row["source"],
                row["breadcrumb"] or row["title"],
                row["chunkIndex"],
                row["embedding"],
            )
            for row in found
        ]


def chunk_vectors(chunk_type: str, *, after: str, limit: int) -> Statement:
    """Select indexed chunks with their vectors, by chunkId."""
    return Statement(
        "SELECT chunkId, source, title, breadcrumb, chunkIndex, embedding"
        f" FROM `{chunk_type}` WHERE chunkId > :floor AND duplicateOf IS NULL"
        f" ORDER BY chunkId LIMIT {limit:d}",
        {"floor": after},
    )


def overview(
    name: str,
    chunk_type: str,
    *,
    width: int | None,
    counted: int | None,
    period: int | None,
    vectors: int | None,
    indexed: int,
) -> Statement:
    """Select sizes, times and some vectors of a collection's chunks; ``None`` omits a part.

    Args:
        name: The collection.
        chunk_type: Its generation.
        width: Width of a bin of chunk sizes in tokens.
        counted: Size of the sample for chunk sizes; ``None`` for all chunks.
        period: Length of a period in milliseconds.
        vectors: Maximum number of vectors, a sample of the vector index.
        indexed: Number of chunks in the vector index.

    Returns one map: ``collection`` (rows of its record), ``sizes`` (rows ``least, chunks`` with
    the lower bound of a bin), ``periods`` (rows ``start, sources, chunks`` with the start of a
    period in epoch milliseconds), ``vectors`` (rows ``embedding``).
    """
    steps = ["LET c = SELECT FROM Collection WHERE key = :name;"]
    answer = ["'collection': $c"]
    if width is not None:
        if counted is not None:
            steps.append(_sample(chunk_type, counted, indexed))
        steps.append(
            f"LET sizes = SELECT tokens - tokens % {width:d} AS least, count(*) AS chunks"
            f" FROM {f'`{chunk_type}`' if counted is None else _SAMPLED} GROUP BY least;"
        )
        answer.append("'sizes': $sizes")
    if period is not None:
        steps.append(
            f"LET periods = SELECT indexedAt - indexedAt % {period:d} AS start,"
            f" count(*) AS sources, sum(chunks) AS chunks FROM `{source_type(chunk_type)}`"
            " WHERE chunks > 0 AND (aspectOf IS NULL OR kind NOT IN :kinds) GROUP BY start;"
        )
        answer.append("'periods': $periods")
    if vectors is not None:
        steps.append(_sample(chunk_type, vectors, indexed))
        steps.append(f"LET vectors = SELECT embedding FROM {_SAMPLED};")
        answer.append("'vectors': $vectors")
    text = f"{' '.join(steps)} RETURN {{{', '.join(answer)}}};"
    return Statement(text, {"name": name, "kinds": list(KINDS)})


def map_points(
    name: str,
    chunk_type: str,
    axes: Sequence[Sequence[float]],
    *,
    limit: int,
    indexed: int,
) -> Statement:
    """Select a sample of chunks, with their cosines to some axes.

    Args:
        name: The collection.
        chunk_type: Its generation.
        axes: Vectors of unit length.
        limit: Maximum number of chunks.
        indexed: Number of chunks in the vector index.

    Returns one map: ``collection`` (rows of its record), ``points`` (rows ``chunkId, source,
    title, excerpt, axis0, axis1, ...``).
    """
    cosines = "".join(
        f", vectorCosineSimilarity(embedding, :axis{place}) AS axis{place}"
        for place in range(len(axes))
    )
    return Statement(
        f"""
        LET c = SELECT FROM Collection WHERE key = :name;
        {_sample(chunk_type, limit, indexed)}
        LET points = SELECT chunkId, source, title.left({_TITLE:d}) AS title,
            content.left({_EXCERPT:d}) AS excerpt{cosines} FROM {_SAMPLED};
        RETURN {{'collection': $c, 'points': $points}};
        """,
        {
            "name": name,
            **{f"axis{place}": list(axis) for place, axis in enumerate(axes)},
        },
    )


def _sample(chunk_type: str, limit: int, indexed: int) -> str:
    """Select a deterministic sample of the chunks in the vector index.

    It has the chunks with the smallest keys, which are hashes: a bottom-k sample (Cohen & Kaplan,
    Summarizing Data Using Bottom-k Sketches, 2007). If too few chunks have keys, it has the first
    chunks by id.
    """

    def first(by: str, where: str = "") -> str:
        return (
            f"LET sample = SELECT @rid AS rid FROM `{chunk_type}` WHERE {where}duplicateOf IS NULL"
            f" ORDER BY {by} LIMIT {limit:d};"
        )

    by_key = first("vectorKey", "vectorKey > '' AND ")
    return f"{by_key} IF ($sample.size() < {min(limit, indexed):d}) {{ {first('chunkId')} }}"
