"""Collections: their records, their generations and their term statistics."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from ability_search.collection import Collection
from ability_search.errors import GenerationGone, StatementRefused
from ability_search.store.arcadedb.core import CLOCK, Statement
from ability_search.store.arcadedb.database import Database
from ability_search.store.arcadedb.rows import statistics_entry
from ability_search.store.arcadedb.schema import (
    create_generation,
    drop_generation,
)
from ability_search.store.records import Read, TermStatisticsEntry
from ability_search.store.values import of_collection

T = TypeVar("T")

_WIRE = {
    "average_length": "averageLength",
    "bm25_k1": "bm25K1",
    "bm25_b": "bm25B",
    "chunk_strategy": "chunkStrategy",
    "chunk_size": "chunkSize",
    "chunk_overlap": "chunkOverlap",
    "kinds_by": "kindsBy",
    "dedup_threshold": "dedupThreshold",
    "content_language": "contentLanguage",
    "query_prefix": "queryPrefix",
    "passage_prefix": "passagePrefix",
    "tokens_min": "tokensMin",
    "tokens_max": "tokensMax",
    "kind_chunks": "aspects",
    "kind_graph": "aspectGraph",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
_FIELDS = {name: _WIRE.get(name, name) for name in Collection.__dataclass_fields__}
"""Fields of a :class:`Collection` -> columns of its record."""
_BESIDE_CHUNKS = re.compile(r"^(Source|Link|Aspect)(?=_)")
"""The other types of a generation; it is named after the type of its chunks."""


class CollectionSql(Database):
    """Records of collections, and their generations; see :class:`.port.CollectionStore`."""

    async def collection(self, name: str) -> Collection | None:
        rows = await self.rows(collection(name))
        return from_record(rows[0]) if rows else None

    async def collections(self) -> list[Collection]:
        return [from_record(row) for row in await self.rows(collections())]

    async def create_collection(self, new: Collection) -> Collection:
        await self.create_generation(new)
        try:
            await self.write(insert_collection(to_record(new)), idempotent=True)
        except StatementRefused as exc:
            if exc.reason != "duplicate":
                raise
            found = await self.collection(new.name)
            if found is None or found.type != new.type:
                await self.drop_generation(new.type)
            if found is None:
                raise
            return found
        return new

    async def create_generation(self, new: Collection) -> None:
        await self.write(create_generation(new.type, dimensions=new.dimensions), idempotent=True)

    async def update_collection(self, changed: Collection, fields: Mapping[str, Any]) -> None:
        columns = {_FIELDS[name]: value for name, value in fields.items()}
        await self.write(
            set_collection_fields(changed.name, changed.type, columns), idempotent=True
        )

    async def delete_collection(self, deleted: Collection) -> bool:
        statement = delete_collection(deleted.name, deleted.type)
        answer, lost = await self.write_once(statement)
        if not (answer["deleted"] or (lost and not answer["left"])):
            return False
        for generation in answer["types"]:
            await self.drop_generation(generation)
        return True

    async def switch_generation(
        self,
        old: Collection,
        built: Collection,
        new: Collection,
        *,
        grace: int,
        result: Mapping[str, Any],
    ) -> bool:
        statement = switch_generation(
            old.name,
            old_type=old.type,
            old_revision=old.revision,
            built=built.name,
            built_revision=built.revision,
            record=to_record(new),
            grace=grace,
            result=result,
        )
        answer = await self.write(statement, idempotent=True)
        return bool(answer["switched"]) or await self._is_live(old.name, new)

    async def publish_generation(self, built: Collection, new: Collection) -> bool:
        statement = publish_generation(built.name, record=to_record(new))
        try:
            answer = await self.write(statement, idempotent=True)
        except StatementRefused as exc:
            if exc.reason != "duplicate":
                raise
            return False
        if not answer["published"] and not await self._is_live(new.name, new):
            raise GenerationGone(built.type)
        return True

    async def _is_live(self, name: str, new: Collection) -> bool:
        """Return whether an attempt without an answer made a generation the live one."""
        current = await self.collection(name)
        return current is not None and current.type == new.type

    async def due_generations(self) -> list[str]:
        return [row["type"] for row in await self.rows(due_generations())]

    async def generations(self) -> list[str]:
        rows = await self.rows(stored_types())
        names = dict.fromkeys(_BESIDE_CHUNKS.sub("Chunk", row["name"]) for row in rows)
        return [name for name in names if name.startswith("Chunk_")]

    async def drop_generation(self, generation: str) -> None:
        await self.write(drop_generation(generation), idempotent=True)

    async def term_statistics(self, generation: str, *, after: int) -> list[TermStatisticsEntry]:
        found = await self.rows(term_statistics(generation, after=after))
        return list(map(statistics_entry, found))

    async def fold_term_statistics(
        self, generation: str, *, revision: int, count: int, unused: int, merged: bytes
    ) -> bool:
        encoded = base64.b64encode(merged).decode("ascii")
        answer = await self.write(
            fold_term_statistics(
                generation, up_to=revision, count=count, unused=unused, merged=encoded
            )
        )
        return bool(answer["folded"])


def from_record(record: Mapping[str, Any]) -> Collection:
    """Convert a database record; fields without a value get their defaults."""
    known = {name: record[wire] for name, wire in _FIELDS.items() if record.get(wire) is not None}
    return Collection(**{**known, "kinds": tuple(known.get("kinds", ()))})


def read_of(answer: Mapping[str, Any], value: T) -> Read[T]:
    """Return a value with the record among the rows ``collection`` of the same answer."""
    records = answer["collection"]
    return Read(from_record(records[0]) if records else None, value)


def to_record(collection: Collection) -> dict[str, Any]:
    """Return the database record of a collection."""
    return {wire: getattr(collection, name) for name, wire in _FIELDS.items()} | {
        "similarity": "cosine",
        "normalized": True,
    }


def collection(name: str) -> Statement:
    """Select the record of one collection: no row or one."""
    return Statement("SELECT FROM Collection WHERE name = :name", {"name": name})


def collections() -> Statement:
    """Select the records of all collections, by name."""
    return Statement("SELECT FROM Collection ORDER BY name", {})


def insert_collection(record: Mapping[str, Any]) -> Statement:
    """Insert the record of a new collection; fails if the name is taken."""
    return Statement(
        "BEGIN; INSERT INTO Collection CONTENT :record; COMMIT;", {"record": dict(record)}
    )


def delete_collection(name: str, chunk_type: str) -> Statement:
    """Delete a collection with its jobs and usage, if it is on this generation.

    Its generation, and one that a job is building, become due for dropping.

    Returns one map: ``deleted`` collections (0 or 1), and the ``types`` to drop; if it is 0, how
    many collections of that name are ``left``.
    """
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET d = DELETE FROM Collection WHERE name = :name AND type = :type;
        IF ($d[0].count = 0) {{
            LET left = SELECT FROM Collection WHERE name = :name;
            LET due = SELECT type FROM Retired WHERE dueAt <= $clock[0].ms;
            ROLLBACK;
            RETURN {{'deleted': 0, 'left': $left.size(), 'types': $due.type}};
        }}
        DELETE FROM Record WHERE scope = :scope;
        LET job = SELECT record FROM Job WHERE collection = :name AND record IS NOT NULL;
        LET built = SELECT type FROM Collection WHERE name IN $job.record;
        FOREACH ($each IN $built) {{
            INSERT INTO Retired SET type = $each.type, dueAt = $clock[0].ms;
        }}
        DELETE FROM Collection WHERE name IN $job.record;
        DELETE FROM Job WHERE collection = :name;
        INSERT INTO Retired SET type = :type, dueAt = $clock[0].ms;
        COMMIT;
        LET types = SELECT type FROM Retired WHERE type = :type OR type IN $built.type;
        RETURN {{'deleted': $d[0].count, 'types': $types.type}};
        """,
        {"name": name, "type": chunk_type, "scope": of_collection(name)},
    )


def switch_generation(
    name: str,
    *,
    old_type: str,
    old_revision: int,
    built: str,
    built_revision: int,
    record: Mapping[str, Any],
    grace: int,
    result: Mapping[str, Any],
) -> Statement:
    """Switch a collection to a generation that was built under another record.

    The old generation becomes due for dropping, and the job that built the new one is done.

    Args:
        name: The collection.
        old_type: Its live generation; nothing happens if it is on another one.
        old_revision: The revision that was built from; nothing happens if it has changed.
        built: The record of the new generation, which is deleted. Nothing happens if there is
            none, because another worker has taken over the job.
        built_revision: The revision of the new generation; nothing happens if it has changed.
        record: The collection's new record.
        grace: Milliseconds for which the old generation is kept.
        result: The result of the job.

    Returns one map: ``switched`` collections (0 or 1).
    """
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET d = DELETE FROM Collection WHERE name = :built AND revision = :builtRevision;
        IF ($d[0].count = 0) {{ ROLLBACK; RETURN {{'switched': 0}}; }}
        LET u = UPDATE Collection MERGE :record
            WHERE name = :name AND type = :type AND revision = :revision;
        IF ($u[0].count = 0) {{ ROLLBACK; RETURN {{'switched': 0}}; }}
        INSERT INTO Retired SET type = :type, dueAt = $clock[0].ms + :grace;
        UPDATE Job SET state = 'done', stage = 'done', done = :sources, total = :sources,
            result = :result, owner = null, record = null, leaseUntil = null,
            updatedAt = $clock[0].ms WHERE collection = :name AND record = :built;
        COMMIT;
        RETURN {{'switched': $u[0].count}};
        """,
        {
            "name": name,
            "type": old_type,
            "revision": old_revision,
            "built": built,
            "builtRevision": built_revision,
            "record": dict(record),
            "sources": record["sources"],
            "grace": grace,
            "result": dict(result),
        },
    )


def publish_generation(built: str, *, record: Mapping[str, Any]) -> Statement:
    """Turn a generation with its own record into a collection; fails if the name is taken.

    Args:
        built: The record under which the generation was built.
        record: The new record.

    Returns one map: ``published`` collections (0 or 1).
    """
    return Statement(
        """
        BEGIN;
        LET u = UPDATE Collection MERGE :record WHERE name = :built;
        COMMIT;
        RETURN {'published': $u[0].count};
        """,
        {"built": built, "record": dict(record)},
    )


def set_collection_fields(name: str, chunk_type: str, fields: Mapping[str, Any]) -> Statement:
    """Change fields of a collection's record if it is still on this generation."""
    return Statement(
        "BEGIN; UPDATE Collection MERGE :fields WHERE name = :name AND type = :type; COMMIT;",
        {"fields": dict(fields), "name": name, "type": chunk_type},
    )


def due_generations() -> Statement:
    """Select the replaced generations whose grace is over: rows ``type``."""
    return Statement("SELECT type FROM Retired WHERE dueAt <= `date.currentTimestamp`()", {})


def stored_types() -> Statement:
    """Select the names of all types."""
    return Statement("SELECT name FROM schema:types", {})


def term_statistics(chunk_type: str, *, after: int) -> Statement:
    """Select the log of term statistics after revision ``after``, in order.

    Rows ``seq, base, added, removed, removedLengths``; ``base`` marks an entry that represents
    everything up to its ``seq``.
    """
    return Statement(
        "SELECT seq, base, added, removed, removedLengths FROM TermStatistics"
        " WHERE type = :type AND seq > :floor ORDER BY seq",
        {"type": chunk_type, "floor": after},
    )


def fold_term_statistics(
    chunk_type: str, *, up_to: int, count: int, unused: int, merged: str
) -> Statement:
    """Add an entry that represents the ``count`` entries up to revision ``up_to``.

    Of those, the ones before revision ``unused`` are deleted. The others stay for statements that
    read the log at this moment: the engine has no snapshots.

    Returns one map: ``folded`` entries (0 or 1); none if another worker was faster.
    """
    return Statement(
        """
        BEGIN;
        LET known = SELECT count(*) AS n FROM TermStatistics
            WHERE type = :type AND seq <= :ceiling;
        IF ($known[0].n <> :expected) { ROLLBACK; RETURN {'folded': 0}; }
        DELETE FROM TermStatistics WHERE type = :type AND seq < :unused;
        INSERT INTO TermStatistics SET type = :type, seq = :ceiling, base = true, added = :merged,
            removed = [], removedLengths = [];
        COMMIT;
        RETURN {'folded': 1};
        """,
        {
            "type": chunk_type,
            "ceiling": up_to,
            "expected": count,
            "unused": unused,
            "merged": merged,
        },
    )
