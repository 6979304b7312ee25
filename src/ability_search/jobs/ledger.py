"""The job records: jobs are begun, claimed, renewed and ended by the worker that owns them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import SearchError
from ability_search.store.port import JobStore
from ability_search.store.records import Job

log = logging.getLogger(__name__)

_BEATS = 3
"""Number of renewals within the duration of a lease."""
_GIVEN_BACK = -1
"""Lease in milliseconds of a released job: already expired."""
_NOTED_WITHIN = 1.0
"""Maximum seconds that work waits for its record to be written."""


@dataclass(slots=True)
class Progress:
    """The progress of a job, recorded with the next renewal."""

    done: int = 0
    total: int = 0
    stage: str = ""


class Jobs:
    """The jobs of all collections, accessed by one worker.

    Every change requires that this worker still owns the job, so that exactly one worker works on
    it.

    Args:
        store: The store of the jobs.
        lease: Seconds after which another worker may claim a job that is not renewed.
    """

    def __init__(self, store: JobStore, *, lease: float) -> None:
        self._store = store
        self._worker = secrets.token_hex(8)
        self._lease = round(lease * 1000)
        self._noting: set[asyncio.Task[None]] = set()
        self.beat = lease / _BEATS
        """Seconds between renewals."""

    async def of(self, collection: str) -> list[Job]:
        """Return the last job of each kind for a collection."""
        return await self._store.jobs(collection)

    async def find(self, collection: str, kind: str) -> Job | None:
        """Return the last job of a kind; ``None`` if there is none."""
        return await self._store.job(collection, kind)

    async def orphaned(self, kind: str) -> list[Job]:
        """Return the running jobs of a kind without a worker."""
        return await self._store.orphaned_jobs(kind)

    async def begin(self, job: Job, built: Collection | None = None) -> Job | None:
        """Record a new job of this worker in place of the last job of its kind.

        Args:
            job: The new job.
            built: The record of the generation that the job builds, if it builds one. Then only
                one worker may have a job of this kind.

        Returns:
            The job; ``None`` if another worker owns the last one.
        """
        job = replace(job, owner=self._worker)
        return job if await self._store.begin_job(job, lease=self._lease, built=built) else None

    async def claim(self, job: Job) -> Job | None:
        """Take over a job without a worker; return ``None`` if another worker was faster."""
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
        done = await self._store.claim_job(
            job,
            owner=self._worker,
            record=record,
            lease=self._lease,
            lost=claimed.lost,
            lost_at=claimed.lost_at,
        )
        return claimed if done else None

    async def renew(self, job: Job, progress: Progress) -> bool:
        """Renew the lease of a job; return False if this worker no longer owns it."""
        return await self._renew(job, progress, self._lease)

    async def give_back(self, job: Job, progress: Progress) -> None:
        """Release a job, so that another worker can claim it."""
        await self._renew(job, progress, _GIVEN_BACK)

    async def _renew(self, job: Job, progress: Progress, lease: int) -> bool:
        return await self._store.renew_job(
            job,
            owner=self._worker,
            lease=lease,
            done=progress.done,
            total=progress.total,
            stage=progress.stage,
        )

    async def end(self, job: Job, state: str, **fields: Any) -> bool:
        """Record the end of a job; return False if this worker does not own it or it has ended."""
        return await self._store.end_job(job, owner=self._worker, state=state, fields=fields)

    async def fail(self, job: Job, error: SearchError) -> bool:
        """Record the failure of a job with its error; returns as :meth:`end` does."""
        return await self.end(job, "failed", error=described(error))

    async def cancel(self, job: Job) -> bool:
        """Cancel a job, whichever worker owns it; return False if it has already ended."""
        return await self._store.end_job(job, owner=None, state="cancelled", fields={})

    async def kept(self, job: Job, progress: Progress) -> None:
        """Renew the lease of a job periodically, until this worker no longer owns it."""
        while True:
            await asyncio.sleep(self.beat)
            try:
                if not await self.renew(job, progress):
                    return
            except SearchError as exc:
                log.warning("could not renew job %s, will retry: %s", job.id, exc)

    @asynccontextmanager
    async def told(self, job: Job) -> AsyncIterator[Progress]:
        """Record the block as a job: its start, its progress and its outcome.

        The block runs even if recording fails.
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
        """Change a record; wait for it at most ``_NOTED_WITHIN`` seconds."""
        task = asyncio.create_task(_tried(change))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)
        await asyncio.wait({task}, timeout=_NOTED_WITHIN)


def new_record(collection: str) -> str:
    """Return a unique name for the record of a generation being built."""
    return f"{collection}@{secrets.token_hex(4)}"


def described(exc: Exception) -> dict[str, str]:
    """Return the record of a failure; an unexpected exception gives no details."""
    if isinstance(exc, SearchError):
        return {"code": exc.code, "message": str(exc), "hint": exc.hint}
    return {"code": SearchError.code, "message": "internal error", "hint": "See the worker's log."}


async def _tried(change: Coroutine[Any, Any, object]) -> None:
    try:
        await change
    except SearchError as exc:
        log.warning("could not record the state of a job: %s", exc)
