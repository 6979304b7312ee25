"""The record of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REINDEX = "reindex"
"""Kind of the jobs that rebuild a collection; another worker continues an abandoned one."""
FILES = "index-file"
"""Kind of the jobs that index files; their results are stored, and no worker continues them."""


@dataclass(frozen=True, slots=True)
class Job:
    """The record of a long operation. Times are epoch milliseconds of the database's clock."""

    id: str
    kind: str
    collection: str
    owner: str | None = None
    """Id of the worker that owns it, while it runs."""
    record: str | None = None
    """Name of the record of the generation being built, while it runs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the call, sufficient to continue the job."""
    state: str = "running"
    """``running``, ``done``, ``failed`` or ``cancelled``."""
    expired: bool = False
    """True if the job is running but its lease has expired."""
    stage: str = ""
    done: int = 0
    total: int = 0
    lost: int = 0
    """Number of workers in a row that were lost without making progress."""
    lost_at: int = -1
    """The value of ``done`` when the last of them was lost."""
    started_at: int = 0
    updated_at: int = 0
    error: Mapping[str, Any] | None = None
    """``code``, ``message`` and ``hint`` if the job failed."""
    result: Mapping[str, Any] | None = None
    """The result if the job is done."""

    @property
    def running(self) -> bool:
        """True if the job has not ended, even if no worker owns it at the moment."""
        return self.state == "running"

    @property
    def losses(self) -> int:
        """The number ``lost``, including the current owner if it did not release the job."""
        if self.owner is None:
            return self.lost
        return 1 + (self.lost if self.done <= self.lost_at else 0)

    @property
    def key(self) -> dict[str, str]:
        """The key of the record: collection, kind and job id."""
        return {"collection": self.collection, "kind": self.kind, "jobId": self.id}


_FIELDS = {
    "id": "jobId",
    "started_at": "startedAt",
    "updated_at": "updatedAt",
    "lost_at": "lostAt",
} | {
    name: name
    for name in Job.__dataclass_fields__
    if name not in ("id", "started_at", "updated_at", "lost_at")
}


def from_record(row: Mapping[str, Any]) -> Job:
    """Convert a database record to a job."""
    return Job(**{name: row[wire] for name, wire in _FIELDS.items() if row.get(wire) is not None})


def to_record(job: Job) -> dict[str, Any]:
    """Return the database record of a new job."""
    return {
        **job.key,
        "owner": job.owner,
        "record": job.record,
        "options": dict(job.options),
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
    }
