"""What is known of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REINDEX = "reindex"
"""Kind of the jobs that build a generation anew; one worker does, another one goes on."""
FILES = "index-file"
"""Kind of the jobs that index files; what they have done is stored, nobody goes on."""


@dataclass(frozen=True, slots=True)
class Job:
    """The record of a long operation. Times are epoch milliseconds of the database's clock."""

    id: str
    kind: str
    collection: str
    owner: str | None = None
    """The worker that is on it, while it runs."""
    record: str | None = None
    """The record of the generation that it builds, while it does."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """How it was asked for, enough to go on with it."""
    state: str = "running"
    """``running``, ``done``, ``failed`` or ``cancelled``."""
    expired: bool = False
    """Of one that is running: whether nobody is on it."""
    stage: str = ""
    done: int = 0
    total: int = 0
    lost: int = 0
    """Workers in a row that have been lost on it without getting it further."""
    lost_at: int = -1
    """``done`` when the last of them was lost."""
    started_at: int = 0
    updated_at: int = 0
    error: Mapping[str, Any] | None = None
    """``code``, ``message`` and ``hint`` of one that failed."""
    result: Mapping[str, Any] | None = None
    """What one came to that is done."""

    @property
    def running(self) -> bool:
        """Whether it has not ended; perhaps nobody is on it at the moment."""
        return self.state == "running"

    @property
    def losses(self) -> int:
        """As ``lost``, with the worker that has left it without giving it back."""
        if self.owner is None:
            return self.lost
        return 1 + (self.lost if self.done <= self.lost_at else 0)

    @property
    def key(self) -> dict[str, str]:
        """What tells it from all others."""
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
    """Read a database record."""
    return Job(**{name: row[wire] for name, wire in _FIELDS.items() if row.get(wire) is not None})


def to_record(job: Job) -> dict[str, Any]:
    """Write the database record of a job that begins."""
    return {
        **job.key,
        "owner": job.owner,
        "record": job.record,
        "options": dict(job.options),
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
    }
