"""The store in ArcadeDB, with the reads that copy whole collections."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ability_search.collection import Collection
from ability_search.store.arcadedb import rows
from ability_search.store.arcadedb.core import Statement, kind_type, source_type
from ability_search.store.arcadedb.database import Database
from ability_search.store.arcadedb.index import IndexSql
from ability_search.store.arcadedb.overview import OverviewSql
from ability_search.store.arcadedb.retrieval import SearchSql
from ability_search.store.arcadedb.schema import create_generation, drop_generation
from ability_search.store.records import ChunkRecord, SourceRecord

_BESIDE_CHUNKS = re.compile(r"^(Source|Link|Aspect)(?=_)")
"""The other types of a generation; it is named after the type of its chunks."""
_POSITION_BITS = 40
"""Bits of a place that hold the position in a bucket; those above hold the bucket."""


class GenerationSql(Database):
    """Generations, see :class:`.port.GenerationStore`."""

    async def create_generation(self, new: Collection) -> None:
        await self.write(create_generation(new.type, dimensions=new.dimensions), idempotent=True)

    async def generations(self) -> list[str]:
        rows = await self.rows(stored_types())
        names = dict.fromkeys(_BESIDE_CHUNKS.sub("Chunk", row["name"]) for row in rows)
        return [name for name in names if name.startswith("Chunk_")]

    async def drop_generation(self, generation: str) -> None:
        await self.write(drop_generation(generation), idempotent=True)


class CopySql(Database):
    """Reads of whole collections, see :class:`.port.CopyStore`."""

    async def source_order(
        self, generation: str, *, after: str, limit: int
    ) -> list[tuple[str, int]]:
        found = await self.generation_read(
            generation, source_places(generation, after=after, limit=limit)
        )
        return [(row["source"], _place(row["rid"])) for row in found]

    async def source_records_at(
        self, generation: str, places: Sequence[int]
    ) -> dict[int, SourceRecord]:
        found = await self.generation_read(
            generation, source_records_at(generation, [_rid(place) for place in places])
        )
        return {_place(row["@rid"]): rows.source_record(row) for row in found}

    async def chunk_records(
        self, generation: str, sources: Sequence[str], *, kinds: bool, first: int, end: int
    ) -> list[ChunkRecord]:
        chunk_type = kind_type(generation) if kinds else generation
        found = await self.generation_read(
            generation, source_chunks(chunk_type, sources, first=first, end=end)
        )
        return [rows.chunk_record(row) for row in found]


class ArcadeStore(
    GenerationSql,
    IndexSql,
    CopySql,
    OverviewSql,
    SearchSql,
):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database."""


def _place(rid: str) -> int:
    bucket, _, position = rid.removeprefix("#").partition(":")
    return int(bucket) << _POSITION_BITS | int(position)


def _rid(place: int) -> str:
    return f"#{place >> _POSITION_BITS}:{place & (1 << _POSITION_BITS) - 1}"


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
    """Select whole Source records by their ``rid``, in any order."""
    return Statement(
        f"SELECT FROM `{source_type(chunk_type)}` WHERE @rid IN :rids", {"rids": list(rids)}
    )


def source_chunks(chunk_type: str, sources: Sequence[str], *, first: int, end: int) -> Statement:
    """Select whole chunks ``first`` to ``end - 1`` of each of ``sources``, in no order."""
    return Statement(
        f"SELECT FROM `{chunk_type}` WHERE source IN :sources"
        f" AND chunkIndex >= {first:d} AND chunkIndex < {end:d}",
        {"sources": list(sources)},
    )


def stored_types() -> Statement:
    """Select the names of all types."""
    return Statement("SELECT name FROM schema:types", {})
