"""Long operations: their owners, leases and outcomes.

All times are those of the database's clock, in epoch milliseconds: workers compare their leases
with it, never with each other's clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ability_search.collection import Collection
from ability_search.store.arcadedb.collections import to_record
from ability_search.store.arcadedb.core import CLOCK, Statement
from ability_search.store.arcadedb.database import Database
from ability_search.store.records import Job

_COLUMNS = {
    "id": "jobId",
    "started_at": "startedAt",
    "updated_at": "updatedAt",
    "lost_at": "lostAt",
}
_FIELDS = {name: _COLUMNS.get(name, name) for name in Job.__dataclass_fields__}
"""Fields of a :class:`Job` -> columns of its record."""

_KEY = "collection = :collection AND kind = :kind AND jobId = :jobId"
_OWN = f"{_KEY} AND state = 'running'"
_DISCARD = """
        LET left = SELECT type FROM Collection WHERE name = $job[0].record;
        FOREACH ($each IN $left) {
            INSERT INTO Retired SET type = $each.type, dueAt = $clock[0].ms;
        }
        DELETE FROM Collection WHERE name = $job[0].record;
"""
"""Discards what the job ``$job`` was building."""


class JobSql(Database):
    """Long operations, see :class:`.port.JobStore`."""

    async def jobs(self, collection: str) -> list[Job]:
        return [_job(row) for row in await self.rows(jobs(collection))]

    async def job(self, collection: str, kind: str) -> Job | None:
        rows = await self.rows(job(collection, kind))
        return _job(rows[0]) if rows else None

    async def orphaned_jobs(self, kind: str) -> list[Job]:
        return [_job(row) for row in await self.rows(orphaned_jobs(kind))]

    async def records_under_construction(self) -> set[str]:
        return {row["record"] for row in await self.rows(records_being_built())}

    async def begin_job(self, begun: Job, *, lease: int, built: Collection | None) -> bool:
        record = None if built is None else to_record(built)
        statement = begin_job(_record(begun), lease=lease, built=record)
        answer = await self.write(statement, idempotent=True)
        return bool(answer["begun"])

    async def claim_job(
        self, claimed: Job, *, owner: str, record: str, lease: int, lost: int, lost_at: int
    ) -> bool:
        answer = await self.write(
            claim_job(
                _key(claimed),
                owner=owner,
                seen=claimed.record or "",
                record=record,
                lease=lease,
                noted={"lost": lost, "lostAt": lost_at},
            ),
            idempotent=True,
        )
        return bool(answer["claimed"])

    async def renew_job(
        self, renewed: Job, *, owner: str, lease: int, done: int, total: int, stage: str
    ) -> bool:
        progress = {"done": done, "total": total, "stage": stage}
        statement = renew_job(_key(renewed), owner=owner, lease=lease, progress=progress)
        answer, lost = await self.write_once(statement)
        return bool(answer["renewed"] or (lost and lease < 0))

    async def end_job(
        self, ended: Job, *, owner: str | None, state: str, fields: Mapping[str, Any]
    ) -> bool:
        statement = end_job(_key(ended), owner=owner, state=state, fields=fields)
        answer, lost = await self.write_once(statement)
        return bool(answer["ended"] or (lost and answer["already"]))


def _job(row: Mapping[str, Any]) -> Job:
    return Job(**{name: row[wire] for name, wire in _FIELDS.items() if row.get(wire) is not None})


def _key(job: Job) -> dict[str, str]:
    return {"collection": job.collection, "kind": job.kind, "jobId": job.id}


def _record(job: Job) -> dict[str, Any]:
    """Return the database record of a new job."""
    return {
        **_key(job),
        "owner": job.owner,
        "record": job.record,
        "options": dict(job.options),
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
        "result": None if job.result is None else dict(job.result),
    }


def jobs(collection: str) -> Statement:
    """Select the last job of each kind of a collection; ``expired`` jobs have no worker."""
    return Statement(
        f"SELECT *, {_EXPIRED} AS expired FROM Job WHERE collection = :collection ORDER BY kind",
        {"collection": collection},
    )


def job(collection: str, kind: str) -> Statement:
    """Select the last job of a kind, as :func:`jobs`: no row or one."""
    return Statement(
        f"SELECT *, {_EXPIRED} AS expired FROM Job WHERE collection = :collection AND kind = :kind",
        {"collection": collection, "kind": kind},
    )


_EXPIRED = "(leaseUntil < `date.currentTimestamp`())"


def orphaned_jobs(kind: str) -> Statement:
    """Select the running jobs of a kind that have no worker."""
    return Statement(
        f"SELECT *, true AS expired FROM Job WHERE kind = :kind AND state = 'running'"
        f" AND {_EXPIRED}",
        {"kind": kind},
    )


def records_being_built() -> Statement:
    """Select the records of generations that running jobs build: rows ``record``."""
    return Statement("SELECT record FROM Job WHERE state = 'running' AND record IS NOT NULL", {})


def begin_job(job: Mapping[str, Any], *, lease: int, built: Mapping[str, Any] | None) -> Statement:
    """Record a job in place of the last one of its kind.

    With ``built`` there can be one worker only: nothing happens if another worker owns the last
    job, and what an abandoned one was building is discarded.

    Args:
        job: ``collection``, ``kind``, ``jobId``, ``owner`` and further columns.
        lease: Milliseconds.
        built: The record of the generation that the job builds, if it builds one.

    Returns one map: ``begun`` (0 or 1).
    """
    alone = (
        """
        IF ($job[0].state = 'running' AND $job[0].record = :record) {
            ROLLBACK; RETURN {'begun': 1};
        }
        IF ($job[0].state = 'running' AND $job[0].leaseUntil >= $clock[0].ms) {
            ROLLBACK; RETURN {'begun': 0};
        }
        """
        + _DISCARD
        + "INSERT INTO Collection CONTENT :built;"
    )
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET job = SELECT state, record, leaseUntil FROM Job
            WHERE collection = :collection AND kind = :kind;
        {alone if built is not None else ""}
        DELETE FROM Job WHERE collection = :collection AND kind = :kind;
        INSERT INTO Job CONTENT :job;
        UPDATE Job SET state = 'running', leaseUntil = $clock[0].ms + :lease,
            startedAt = $clock[0].ms, updatedAt = $clock[0].ms
            WHERE collection = :collection AND kind = :kind;
        COMMIT;
        RETURN {{'begun': 1}};
        """,
        {
            "job": dict(job),
            "collection": job["collection"],
            "kind": job["kind"],
            "record": job["record"],
            "lease": lease,
            **({} if built is None else {"built": dict(built)}),
        },
    )


def claim_job(
    job: Mapping[str, Any],
    *,
    owner: str,
    seen: str,
    record: str,
    lease: int,
    noted: Mapping[str, Any],
) -> Statement:
    """Take over a job without a worker.

    The record of its generation is renamed, so that a previous owner that is still running writes
    to a record that does not exist.

    Args:
        job: Its key: ``collection``, ``kind`` and ``jobId``.
        owner: The new owner.
        seen: The name of the record so far; nothing happens if it has another one.
        record: The new name.
        lease: Milliseconds.
        noted: ``lost`` and ``lostAt``, see :class:`.records.Job`.

    Returns one map: ``claimed`` (0 or 1).
    """
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET u = UPDATE Job SET owner = :owner, record = :record, lost = :lost, lostAt = :lostAt,
            leaseUntil = $clock[0].ms + :lease, updatedAt = $clock[0].ms
            WHERE {_OWN} AND record = :seen AND leaseUntil < $clock[0].ms;
        IF ($u[0].count = 0) {{
            LET own = SELECT FROM Job WHERE {_OWN} AND owner = :owner AND record = :record;
            ROLLBACK; RETURN {{'claimed': $own.size()}};
        }}
        UPDATE Collection SET name = :record WHERE name = :seen;
        COMMIT;
        RETURN {{'claimed': 1}};
        """,
        {**job, "owner": owner, "seen": seen, "record": record, "lease": lease, **noted},
    )


def renew_job(
    job: Mapping[str, Any], *, owner: str, lease: int, progress: Mapping[str, Any]
) -> Statement:
    """Renew the lease of a job for ``lease`` milliseconds and record its progress.

    Args:
        job: Its key: ``collection``, ``kind`` and ``jobId``.
        owner: Its owner; nothing happens if another worker owns it.
        lease: In milliseconds; a negative one releases the job, which then has no owner.
        progress: ``done``, ``total`` and ``stage``.

    Returns one map: ``renewed`` (0 or 1).
    """
    left = " owner = null," if lease < 0 else ""
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET u = UPDATE Job SET done = :done, total = :total, stage = :stage,{left}
            leaseUntil = $clock[0].ms + :lease, updatedAt = $clock[0].ms
            WHERE {_OWN} AND owner = :owner;
        COMMIT;
        RETURN {{'renewed': $u[0].count}};
        """,
        {**job, "owner": owner, "lease": lease, **progress},
    )


def end_job(
    job: Mapping[str, Any], *, owner: str | None, state: str, fields: Mapping[str, Any]
) -> Statement:
    """Record the end of a job, and discard what it was building.

    Args:
        job: Its key: ``collection``, ``kind`` and ``jobId``.
        owner: Its owner; nothing happens if another worker owns it. ``None`` ends any job.
        state: ``done``, ``failed`` or ``cancelled``.
        fields: Further columns to set.

    Returns one map: ``ended`` (0 or 1), and if it is 0 whether it has ``already`` this state.
    """
    owned = "" if owner is None else " AND owner = :owner"
    return Statement(
        f"""
        BEGIN;
        {CLOCK}
        LET job = SELECT record FROM Job WHERE {_OWN}{owned};
        IF ($job.size() = 0) {{
            LET already = SELECT FROM Job WHERE {_KEY} AND state = :state;
            ROLLBACK; RETURN {{'ended': 0, 'already': $already.size()}};
        }}
        {_DISCARD}
        UPDATE Job MERGE :fields WHERE {_OWN};
        UPDATE Job SET state = :state, owner = null, record = null, leaseUntil = null,
            updatedAt = $clock[0].ms WHERE {_OWN};
        COMMIT;
        RETURN {{'ended': 1}};
        """,
        {
            **job,
            "state": state,
            "fields": dict(fields),
            **({} if owner is None else {"owner": owner}),
        },
    )
