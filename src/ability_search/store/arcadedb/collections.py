"""The records of collections, and what is known of their terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.jobs import CLOCK


def collection(name: str) -> Statement:
    """The record of one collection: no row or one."""
    return Statement("SELECT FROM Collection WHERE name = :name", {"name": name})


def collections() -> Statement:
    """The records of all collections, by name."""
    return Statement("SELECT FROM Collection ORDER BY name", {})


def insert_collection(record: Mapping[str, Any]) -> Statement:
    """Record a new collection; fails if the name is taken."""
    return Statement(
        "BEGIN; INSERT INTO Collection CONTENT :record; COMMIT;", {"record": dict(record)}
    )


def delete_collection(name: str, chunk_type: str) -> Statement:
    """Forget a collection, its jobs, and who was shown what of it, if it is on this generation.

    Its generation, and one that a job is building, are noted to be dropped.

    Returns one map: ``deleted`` collections (0 or 1), ``types`` that are to be dropped.
    """
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET d = DELETE FROM Collection WHERE name = :name AND type = :type;
        IF ($d[0].count = 0) {{ ROLLBACK; RETURN {{'deleted': 0, 'types': []}}; }}
        DELETE FROM Usage WHERE collection = :name;
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
        {"name": name, "type": chunk_type},
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
    """Put a collection on a generation that was built under a record of its own.

    The old one is noted to be dropped, and a job that has built the new one is done.

    Args:
        name: The collection.
        old_type: Its live generation; nothing happens if it no longer is.
        old_revision: The revision that was built from; nothing happens if it moved on.
        built: The record under which the new generation was built; it disappears. Nothing
            happens if it has already, as somebody else goes on with it.
        built_revision: The revision of the new generation; nothing happens if it moved on.
        record: The collection's record from now on.
        grace: Milliseconds for which the old generation stays.
        result: What the job came to.

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
    """Make what was built under a record of its own a collection; fails if its name is taken.

    Args:
        built: The record under which the generation was built.
        record: What it becomes.

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
    """Merge fields into a collection's record if it still is on this generation."""
    return Statement(
        "BEGIN; UPDATE Collection MERGE :fields WHERE name = :name AND type = :type; COMMIT;",
        {"fields": dict(fields), "name": name, "type": chunk_type},
    )


def stored_types() -> Statement:
    """The names of all types, for finding generations that no collection refers to."""
    return Statement("SELECT name FROM schema:types", {})


def term_statistics(chunk_type: str, *, after: int) -> Statement:
    """Select the term statistics recorded since revision ``after``, in order.

    Rows ``seq, base, added, removed, removedLengths``; ``base`` marks a record that stands for
    everything up to its ``seq``.
    """
    return Statement(
        "SELECT seq, base, added, removed, removedLengths FROM TermStatistics"
        " WHERE type = :type AND seq > :floor ORDER BY seq",
        {"type": chunk_type, "floor": after},
    )


def fold_term_statistics(chunk_type: str, *, up_to: int, count: int, merged: str) -> Statement:
    """Replace the ``count`` records up to revision ``up_to`` by one that stands for them.

    Returns one map: ``deleted``; if it is not ``count``, somebody else was faster and nothing was
    changed.
    """
    return Statement(
        """
        BEGIN;
        LET d = DELETE FROM TermStatistics WHERE type = :type AND seq <= :ceiling;
        IF ($d[0].count <> :expected) { ROLLBACK; RETURN {'deleted': 0}; }
        INSERT INTO TermStatistics SET type = :type, seq = :ceiling, base = true, added = :merged,
            removed = [], removedLengths = [];
        COMMIT;
        RETURN {'deleted': $d[0].count};
        """,
        {"type": chunk_type, "ceiling": up_to, "expected": count, "merged": merged},
    )
