"""Jobs: long operations recorded in the store, each leased by one worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import Busy, Cancelled, SearchError
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.records import FILES, HISTORY, INDEX, Job
from ability_search.store.stored_collections import (
    delete_collection,
    discard_record,
    put_collection,
    read_collection,
    retire,
)
from ability_search.store.values import Change, Put, Read, Record, Records, Scalar, of_collection
from ability_search.wire import COMPLETED, FAILED, PROGRESS

log = logging.getLogger(__name__)


Publish = Callable[[str, dict[str, Any]], Awaitable[None]]
"""A function that publishes an event on a channel; never raises."""

_JOB = "job"
"""Kind of the records of jobs, by the kind of the job: the last one of each."""
_RUNNING: Mapping[str, Scalar | None] = {"state": "running"}
_OWN_FIELDS = ("kind", "collection", "expired", "started_at", "updated_at", "revision")
_FIELDS = tuple(each.name for each in fields(Job) if each.name not in _OWN_FIELDS)
_BEATS = 3
"""Number of renewals within the duration of a lease."""
_RELEASED = -1
"""Lease in milliseconds of a released job: already expired."""
_HISTORY = 20
"""Earlier runs of a kind that a record keeps."""
_RECORDED_WITHIN = 1.0
"""Maximum seconds that work waits for its record to be written."""


@dataclass(slots=True)
class JobProgress:
    """The progress of a job, recorded with the next renewal."""

    done: int = 0
    total: int = 0
    stage: str = ""
    result: Mapping[str, Any] | None = None
    """The result, set before a recorded block ends."""


class Jobs:
    """The jobs of all collections, accessed by one worker.

    Every change requires that this worker still owns the job, so that exactly one worker works on
    it.

    Args:
        store: The store of the jobs.
        lease: Seconds after which another worker may claim a job that is not renewed.
    """

    def __init__(self, store: Store, *, lease: float) -> None:
        self._store = store
        self._worker = secrets.token_hex(8)
        self._lease = round(lease * 1000)
        self._recording: set[asyncio.Task[None]] = set()
        self.beat = lease / _BEATS
        """Seconds between renewals."""

    async def find(self, collection: str, kind: str) -> Job | None:
        """Return the last job of a kind; ``None`` if there is none."""
        found = await read_all(self._store, Read(replace(jobs_of(collection), keys=[(kind,)])))
        return job_of(found[0]) if found else None

    async def orphaned(self, kind: str) -> list[Job]:
        """Return the running jobs of a kind whose lease has expired."""
        found = await read_all(self._store, Read(Records(_JOB, where=_RUNNING, expired=True)))
        return [job_of(record) for record in found if record.key == (kind,)]

    async def begin(
        self, job: Job, built: Collection | None = None, *, last: Job | None = None
    ) -> Job | None:
        """Record a new job of this worker in place of the last job of its kind.

        Args:
            job: The new job.
            built: The record of the generation that the job builds, if it builds one. Then only
                one worker may have a job of this kind, and what the last one left is discarded.
            last: The last job of its kind, if it builds generations.

        Returns:
            The job; ``None`` if another worker owns the last one.
        """
        job = replace(job, owner=self._worker, builds=None if built is None else built.type)
        new = {name: getattr(job, name) for name in _FIELDS}
        put = replace(_put(job, new, lease=self._lease), merge=False, fresh=True)
        if built is None:
            await self._store.commit([put])
            return job
        while last is None or not last.running or last.expired:
            put = replace(put, revision=0 if last is None else last.revision)
            begun = await self._store.commit([put, *_discarded(last), put_collection(built)])
            if begun.done:
                return job
            last = None if begun.record is None else job_of(begun.record)
        return None

    async def claim(self, job: Job) -> Job | None:
        """Take over a job without a worker; return ``None`` if another worker was faster.

        The record of its generation is renamed: a previous owner that is still running then writes
        to a record that does not exist.
        """
        if job.record is None or not job.expired:
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
        taken = {name: getattr(claimed, name) for name in ("owner", "record", "lost", "lost_at")}
        put = _put(claimed, taken, revision=job.revision, lease=self._lease)
        while True:
            built = await read_collection(self._store, job.record)
            moved: list[Change] = []
            if built is not None:
                moved = [
                    delete_collection(built, type=built.type, revision=built.revision),
                    put_collection(replace(built, name=record)),
                ]
            committed = await self._store.commit([put, *moved])
            if committed.done:
                return claimed
            if committed.refused == 0:
                return None

    async def renew(self, job: Job, progress: JobProgress) -> bool:
        """Renew the lease of a job; return False if this worker no longer owns it."""
        return await self._progressed(job, progress, lease=self._lease)

    async def release(self, job: Job, progress: JobProgress) -> None:
        """Release a job, so that another worker can claim it."""
        await self._progressed(job, progress, lease=_RELEASED, owner=None)

    async def _progressed(self, job: Job, progress: JobProgress, lease: int, **fields: Any) -> bool:
        fields |= {"done": progress.done, "total": progress.total, "stage": progress.stage}
        put = _put(job, fields, where=self._own(job), lease=lease)
        return (await self._store.commit([put])).done

    def _own(self, job: Job) -> dict[str, Scalar | None]:
        return {"id": job.id, "owner": self._worker, **_RUNNING}

    def ended(self, job: Job, state: str, **fields: Any) -> Put:
        """Return the change that records the end of a job; refused if this worker lost it."""
        fields |= {"state": state, "owner": None, "record": None, "builds": None}
        return _put(job, fields, where=self._own(job), lease=None)

    async def end(self, job: Job, state: str, **fields: Any) -> bool:
        """Record the end of a job; return False if this worker does not own it or it has ended."""
        changes = [self.ended(job, state, **fields), *_discarded(job)]
        return (await self._store.commit(changes)).done

    async def fail(self, job: Job, error: SearchError) -> bool:
        """Record the failure of a job with its error; returns as :meth:`end` does."""
        return await self.end(job, "failed", error=failure_record(error))

    async def cancel(self, job: Job) -> bool:
        """Cancel a job, whichever worker owns it; return False if it has already ended."""
        seen: Job | None = job
        while seen is not None and seen.id == job.id and seen.running:
            where = {"id": seen.id, "record": seen.record, **_RUNNING}
            put = replace(self.ended(seen, "cancelled"), where=where)
            committed = await self._store.commit([put, *_discarded(seen)])
            if committed.done:
                return True
            seen = None if committed.record is None else job_of(committed.record)
        return False

    async def keep(self, job: Job, progress: JobProgress) -> None:
        """Renew the lease of a job periodically, until this worker no longer owns it."""
        while True:
            await asyncio.sleep(self.beat)
            try:
                if not await self.renew(job, progress):
                    return
            except SearchError as exc:
                log.warning("could not renew job %s, will retry: %s", job.id, exc)

    @asynccontextmanager
    async def recorded(self, job: Job, *, after: float = 0.0) -> AsyncIterator[JobProgress]:
        """Record the block as a job: its start, progress and outcome.

        The record of a job that indexes also has the outcomes of those before it.

        The block runs even if recording fails.

        Args:
            job: The new job.
            after: Seconds; a block that ends sooner is not recorded and costs no round trip.
        """
        progress = JobProgress()
        ready = asyncio.Event()
        begun: asyncio.Task[None] | None = None

        async def record() -> None:
            nonlocal begun
            await asyncio.sleep(after)
            begun = self._attempt(self._begin_run(job))
            await asyncio.wait({begun}, timeout=_RECORDED_WITHIN)
            ready.set()
            await self.keep(job, progress)

        recording = asyncio.create_task(record(), name=f"job {job.id}")
        fields: dict[str, Any] = {"state": "done"}
        try:
            if not after:
                await ready.wait()
            yield progress
        except asyncio.CancelledError:
            fields["state"] = "cancelled"
            raise
        except Exception as exc:
            fields |= {"state": "failed", "error": failure_record(exc)}
            raise
        finally:
            recording.cancel()
            if begun is not None:
                fields |= {"done": progress.done, "total": progress.total}
                fields["stage"] = "done" if fields["state"] == "done" else progress.stage
                if progress.result is not None:
                    fields["result"] = progress.result
                # A task of its own: calls also end while the worker closes.
                end = self._attempt(self._end_run(begun, job, fields))
                await asyncio.wait({end}, timeout=_RECORDED_WITHIN)

    async def _end_run(self, begun: asyncio.Task[None], job: Job, fields: dict[str, Any]) -> None:
        await begun
        await self.end(job, **fields)

    def _attempt(self, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Change a record; the task outlives the block, and logs a failure."""
        task = asyncio.create_task(_logged(change))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        return task

    async def close(self) -> None:
        """Stop recording."""
        for task in self._recording:
            task.cancel()
        await asyncio.gather(*self._recording, return_exceptions=True)

    async def _begin_run(self, job: Job) -> None:
        """Record a new job; one that indexes with the outcomes of those before it."""
        if job.kind not in (FILES, INDEX):
            await self.begin(job)
            return
        last = await self.find(job.collection, job.kind)
        history = () if last is None else [_outcome(last), *last.options.get(HISTORY, ())]
        await self.begin(replace(job, options={HISTORY: list(history)[:_HISTORY]}))


class Run:
    """A job that this worker executes.

    The work is cancelled when this worker no longer owns the job, for whatever reason.

    Args:
        jobs: The job records.
        job: The job, owned by this worker.
        work: Executes the job and records its end.
        publish: Publishes the events of the job unless there is a ``listener``.
    """

    def __init__(
        self,
        jobs: Jobs,
        job: Job,
        work: Callable[[Run], Coroutine[Any, Any, None]],
        publish: Publish,
    ) -> None:
        self.job = job
        self.progress = JobProgress(job.done, job.total, job.stage)
        self.failure: SearchError | None = None
        """The error if the job failed in this worker."""
        self.listener: Publish | None = None
        """Receives the events instead of ``publish``."""
        self._jobs = jobs
        self._publish = publish
        self._released = False
        self._work = asyncio.create_task(work(self), name=f"job {job.id}")
        self.ended = asyncio.create_task(self._run(), name=f"keep job {job.id}")

    async def report(self, done: int, total: int, stage: str) -> None:
        """Record and publish the progress."""
        done = min(done, total)  # files that only hold documents do not count in the total
        self.progress.done, self.progress.total, self.progress.stage = done, total, stage
        await self._publish_event(PROGRESS, done=done, total=total, stage=stage)

    async def finished(self) -> Job:
        """Wait until the job is done; cancelling the wait does not affect the job.

        Raises:
            Cancelled: if the job was cancelled, or its collection deleted.
            Busy: if this worker no longer owns the job and another one will continue it.
            SearchError: if the job failed.
        """
        return await asyncio.shield(self.ended)

    async def cancel(self) -> None:
        """Stop the work and cancel the job."""
        self.failure = self.failure or self._cancelled()
        self._work.cancel()
        await self._jobs.cancel(self.job)

    async def release(self) -> None:
        """Stop the work and release the job, so that another worker can continue it at once."""
        self._released = True
        self._work.cancel()
        await asyncio.gather(self.ended, return_exceptions=True)

    async def _run(self) -> Job:
        beat = asyncio.create_task(self._jobs.keep(self.job, self.progress))
        try:
            await asyncio.wait({self._work, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._work.cancel()
            beat.cancel()
            stopped, _ = await asyncio.gather(self._work, beat, return_exceptions=True)
        if isinstance(stopped, Exception):
            log.error("job %s stopped", self.job.id, exc_info=stopped)
        if self._released:
            await self._jobs.release(self.job, self.progress)
            raise Busy(
                f"the worker is stopping; another one continues job {self.job.id}", hint=_FOLLOW
            )
        try:
            job = await self._outcome()
        except SearchError as exc:
            if not isinstance(exc, Busy):
                await self._publish_event(FAILED, code=exc.code, error=str(exc))
            raise
        await self._publish_event(COMPLETED)
        return job

    async def _outcome(self) -> Job:
        if self.failure is not None:
            raise self.failure
        job = await self._jobs.find(self.job.collection, self.job.kind)
        if job is None or job.id != self.job.id or job.state == "cancelled":
            raise self._cancelled()
        if job.state != "done":
            raise Busy(f"another worker continues job {job.id}", hint=_FOLLOW)
        return job

    def _cancelled(self) -> Cancelled:
        return Cancelled(f"job {self.job.id} was cancelled", hint="Nothing was changed.")

    async def _publish_event(self, channel: str, **data: object) -> None:
        about = {"jobId": self.job.id, "collection": self.job.collection}
        await (self.listener or self._publish)(channel, {**about, **data})


_FOLLOW = "search-collection-info shows its progress."


def jobs_of(collection: str) -> Records:
    """Return the selection of the last job of each kind of a collection."""
    return Records(_JOB, of_collection(collection))


def job_of(record: Record) -> Job:
    """Return the job that a record holds."""
    return Job(
        kind=record.key[0],
        collection=record.scope.partition("/")[2],
        expired=record.expired,
        started_at=record.created_at,
        updated_at=record.updated_at,
        revision=record.revision,
        **record.fields,
    )


def _put(job: Job, fields: Mapping[str, Any], **conditions: Any) -> Put:
    """Return a change of fields of the record of a job."""
    scope = of_collection(job.collection)
    return Put(_JOB, scope, (job.kind,), fields, merge=True, **conditions)


def _discarded(job: Job | None) -> list[Change]:
    """Return the changes that discard what a job was building."""
    if job is None or job.record is None or job.builds is None:
        return []
    return [discard_record(job.record), retire(job.builds, grace=0)]


async def records_under_construction(store: Store) -> set[str]:
    """Return the names of the records that running jobs build."""
    found = await read_all(store, Read(Records(_JOB, where=_RUNNING)))
    return {job.record for job in map(job_of, found) if job.record is not None}


def new_record(collection: str) -> str:
    """Return a unique name for the record of a generation being built."""
    return f"{collection}@{secrets.token_hex(4)}"


def failure_record(exc: Exception) -> dict[str, str]:
    """Return the record of a failure; an unexpected exception gives no details."""
    if isinstance(exc, SearchError):
        return {"code": exc.code, "message": str(exc), "hint": exc.hint}
    return {"code": SearchError.code, "message": "internal error", "hint": "See the worker's log."}


def _outcome(job: Job) -> dict[str, Any]:
    """Return the entry of a past job in the history."""
    return {
        "jobId": job.id,
        "state": "interrupted" if job.running else job.state,
        "done": job.done,
        "total": job.total,
        "startedAt": job.started_at,
        "updatedAt": job.updated_at,
        "error": dict(job.error) if job.error else None,
        "result": dict(job.result) if job.result else None,
    }


async def _logged(change: Awaitable[object]) -> None:
    try:
        await change
    except SearchError as exc:
        log.warning("could not record the state of a job: %s", exc)
