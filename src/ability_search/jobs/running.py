"""The execution of a job by this worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ability_search.errors import Busy, Cancelled, SearchError
from ability_search.jobs.events import COMPLETED, FAILED, PROGRESS, Publish
from ability_search.jobs.ledger import Jobs, Progress
from ability_search.store.records import Job

log = logging.getLogger(__name__)


class Run:
    """A job that this worker executes.

    The work is cancelled when this worker no longer owns the job, for whatever reason.

    Args:
        jobs: The job records.
        job: The job, owned by this worker.
        work: Executes the job and records its end; must not raise.
        publish: Publishes the events of the job unless there is a ``listener``.
    """

    def __init__(
        self, jobs: Jobs, job: Job, work: Callable[[Run], Awaitable[None]], publish: Publish
    ) -> None:
        self.job = job
        self.progress = Progress(job.done, job.total, job.stage)
        self.failure: SearchError | None = None
        """The error if the job failed in this worker."""
        self.listener: Publish | None = None
        """Receives the events instead of ``publish``."""
        self._jobs = jobs
        self._publish = publish
        self._given_back = False
        self._work = asyncio.create_task(self._guarded(work), name=f"job {job.id}")
        self.ended = asyncio.create_task(self._run(), name=f"keep job {job.id}")

    async def report(self, done: int, total: int, stage: str) -> None:
        """Record and publish the progress."""
        self.progress.done, self.progress.total, self.progress.stage = done, total, stage
        await self._tell(PROGRESS, done=done, total=total, stage=stage)

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

    async def give_back(self) -> None:
        """Stop the work and release the job, so that another worker can continue it at once."""
        self._given_back = True
        self._work.cancel()
        await asyncio.gather(self.ended, return_exceptions=True)

    async def _guarded(self, work: Callable[[Run], Awaitable[None]]) -> None:
        try:
            await work(self)
        except Exception:
            log.exception("job %s stopped", self.job.id)

    async def _run(self) -> Job:
        beat = asyncio.create_task(self._jobs.kept(self.job, self.progress))
        try:
            await asyncio.wait({self._work, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._work.cancel()
            beat.cancel()
            await asyncio.gather(self._work, beat, return_exceptions=True)
        if self._given_back:
            await self._jobs.give_back(self.job, self.progress)
            raise Busy(
                f"the worker is stopping; another one continues job {self.job.id}", hint=_FOLLOW
            )
        try:
            job = await self._outcome()
        except SearchError as exc:
            if not isinstance(exc, Busy):
                await self._tell(FAILED, code=exc.code, error=str(exc))
            raise
        await self._tell(COMPLETED)
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

    async def _tell(self, channel: str, **data: object) -> None:
        about = {"jobId": self.job.id, "collection": self.job.collection}
        await (self.listener or self._publish)(channel, {**about, **data})


_FOLLOW = "search-collection-info shows its progress."
