"""The records of jobs: begun, claimed, renewed and ended by whoever they belong to."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.errors import SearchError
from ability_search.jobs.model import Job, from_record, to_record

log = logging.getLogger(__name__)

_BEATS = 3
"""Times that a lease is renewed before it would run out."""
_GIVEN_BACK = -1
"""A lease in milliseconds that has run out."""
_NOTED_WITHIN = 1.0
"""Seconds that work waits at most for its record."""


@dataclass(slots=True)
class Progress:
    """How far a job is, to be told with its next renewal."""

    done: int = 0
    total: int = 0
    stage: str = ""


class Jobs:
    """The jobs of all collections, and which of them are this worker's.

    Every change is conditional on the job still being the worker's own, so that exactly one
    works on it.

    Args:
        catalogue: Reads and writes.
        lease: Seconds after which a job whose worker does not renew it is another one's.
    """

    def __init__(self, catalogue: Catalogue, *, lease: float) -> None:
        self._catalogue = catalogue
        self._worker = secrets.token_hex(8)
        self._lease = round(lease * 1000)
        self._noting: set[asyncio.Task[None]] = set()
        self.beat = lease / _BEATS
        """Seconds between renewals."""

    async def of(self, collection: str) -> list[Job]:
        """The last job of each kind of a collection."""
        rows = await self._catalogue.read(statements.jobs(collection))
        return [from_record(row) for row in rows]

    async def find(self, collection: str, kind: str) -> Job | None:
        """The last job of a kind."""
        rows = await self._catalogue.read(statements.job(collection, kind))
        return from_record(rows[0]) if rows else None

    async def orphaned(self, kind: str) -> list[Job]:
        """Jobs of a kind that are to go on and that nobody works on."""
        rows = await self._catalogue.read(statements.orphaned_jobs(kind))
        return [from_record(row) for row in rows]

    async def begin(self, job: Job, built: Mapping[str, Any] | None = None) -> Job | None:
        """Record a job of this worker, in place of the last one of its kind.

        Args:
            job: As it begins.
            built: The record of the generation that it builds. There is one worker only then.

        Returns:
            The job; ``None`` if another worker is on the last one.
        """
        job = replace(job, owner=self._worker)
        answer = await self._catalogue.write(
            statements.begin_job(to_record(job), lease=self._lease, built=built)
        )
        return job if answer["begun"] else None

    async def claim(self, job: Job) -> Job | None:
        """Take over a job that nobody works on; ``None`` if another worker was faster."""
        if job.record is None:
            return None
        record = new_record(job.collection)
        claimed = replace(
            job,
            owner=self._worker,
            record=record,
            expired=False,
            lost=job.losses,
            lost_at=job.done,
        )
        answer = await self._catalogue.write(
            statements.claim_job(
                job.key,
                owner=self._worker,
                seen=job.record,
                record=record,
                lease=self._lease,
                noted={"lost": claimed.lost, "lostAt": claimed.lost_at},
            )
        )
        return claimed if answer["claimed"] else None

    async def renew(self, job: Job, progress: Progress) -> bool:
        """Stay with a job; false if it is not this worker's any more."""
        return await self._renew(job, progress, self._lease)

    async def give_back(self, job: Job, progress: Progress) -> None:
        """Leave a job to whoever looks for one next."""
        await self._renew(job, progress, _GIVEN_BACK)

    async def _renew(self, job: Job, progress: Progress, lease: int) -> bool:
        told = {"done": progress.done, "total": progress.total, "stage": progress.stage}
        answer = await self._catalogue.write(
            statements.renew_job(job.key, owner=self._worker, lease=lease, progress=told)
        )
        return bool(answer["renewed"])

    async def end(self, job: Job, state: str, **fields: Any) -> bool:
        """Record the end of a job of this worker; false if it is another's or has ended."""
        answer = await self._catalogue.write(
            statements.end_job(job.key, owner=self._worker, state=state, fields=fields)
        )
        return bool(answer["ended"])

    async def fail(self, job: Job, error: SearchError) -> bool:
        """As :meth:`end`, with the reason."""
        return await self.end(job, "failed", error=described(error))

    async def cancel(self, job: Job) -> bool:
        """End a job, whoever works on it; false if it has ended."""
        answer = await self._catalogue.write(
            statements.end_job(job.key, owner=None, state="cancelled", fields={})
        )
        return bool(answer["ended"])

    async def kept(self, job: Job, progress: Progress) -> None:
        """Renew the lease of a job again and again, until it is not this worker's any more."""
        while True:
            await asyncio.sleep(self.beat)
            try:
                if not await self.renew(job, progress):
                    return
            except SearchError as exc:
                log.warning("could not renew job %s yet: %s", job.id, exc)

    @asynccontextmanager
    async def told(self, job: Job) -> AsyncIterator[Progress]:
        """Record that the block runs, how far it is, and how it ends.

        That this cannot be recorded stops nobody.
        """
        progress = Progress()
        await self._noted(self.begin(job))
        beating = asyncio.create_task(self.kept(job, progress), name=f"job {job.id}")
        state = "done"
        fields: dict[str, Any] = {}
        try:
            yield progress
        except asyncio.CancelledError:
            state = "cancelled"
            raise
        except Exception as exc:
            state, fields = "failed", {"error": described(exc)}
            raise
        finally:
            beating.cancel()
            fields |= {"done": progress.done, "total": progress.total, "stage": progress.stage}
            await self._noted(self.end(job, state, **fields))

    async def close(self) -> None:
        """Stop recording."""
        for task in self._noting:
            task.cancel()
        await asyncio.gather(*self._noting, return_exceptions=True)

    async def _noted(self, change: Coroutine[Any, Any, object]) -> None:
        """Change a record, and wait for that only so long."""
        task = asyncio.create_task(_tried(change))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)
        await asyncio.wait({task}, timeout=_NOTED_WITHIN)


def new_record(collection: str) -> str:
    """A name for the record of a generation that is being built; no other has it."""
    return f"{collection}@{secrets.token_hex(4)}"


def described(exc: Exception) -> dict[str, str]:
    """What is recorded of a failure; nothing of what is not expected."""
    if isinstance(exc, SearchError):
        return {"code": exc.code, "message": str(exc), "hint": exc.hint}
    return {"code": SearchError.code, "message": "internal error", "hint": "See the worker's log."}


async def _tried(change: Coroutine[Any, Any, object]) -> None:
    try:
        await change
    except SearchError as exc:
        log.warning("the state of a job was not recorded: %s", exc)
