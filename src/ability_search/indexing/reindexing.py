"""Reindexing collections, as jobs that survive the loss of their worker."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import Busy, NotFound, SearchError
from ability_search.generations import Generations
from ability_search.indexing.options import IndexOptions
from ability_search.indexing.rebuilding import Rebuilding
from ability_search.jobs.events import Publish
from ability_search.jobs.ledger import Jobs, new_record
from ability_search.jobs.running import Run
from ability_search.store.records import REINDEX, Job
from ability_search.store.registry import Registry
from kadi_client.backoff import Backoff
from kadi_client.context import incident

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 15.0
"""Maximum seconds between retries while the database or model is unavailable."""
_MOST_LOST = 5
"""Workers in a row that may be lost on a job without progress, since the job may be the cause."""
_TO_END = 1.0
"""Seconds to end cancelled jobs when the worker stops."""


class Reindexing:
    """The reindex service.

    A new generation is built under a separate record, so that it is not visible before it is
    complete, and then replaces the live one in a single update. The job is recorded, and any
    worker can continue a job whose worker is lost.

    Args:
        registry: The registry of collections.
        generations: Drops abandoned generations.
        jobs: The job records.
        rebuilding: Builds generations.
        patience: Seconds to wait for a database or a model that is unavailable.
        publish: Publishes the events of jobs without a waiting caller.
    """

    def __init__(
        self,
        registry: Registry,
        generations: Generations,
        jobs: Jobs,
        rebuilding: Rebuilding,
        *,
        patience: float,
        publish: Publish,
    ) -> None:
        self._registry = registry
        self._generations = generations
        self._jobs = jobs
        self._rebuilding = rebuilding
        self._patience = patience
        self._publish = publish
        self._runs: dict[str, Run] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def runs(self) -> Sequence[Run]:
        """The jobs that this worker executes."""
        return tuple(self._runs.values())

    async def start(self, name: str, options: IndexOptions, *, job_id: str | None = None) -> Run:
        """Start a job that chunks and embeds the whole collection again.

        An abandoned job with the same options is continued; one with other options is replaced.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if an option is invalid.
            Busy: if a worker is rebuilding the collection.
            EmbeddingUnavailable: if the model is not available.
        """
        if self._closed:
            raise Busy("the worker is shutting down", retry_after=1.0)
        live = await self._current(name)
        options = self._rebuilding.resolved(live, options)
        last = await self._jobs.find(name, REINDEX)
        if last is not None and last.running and not last.expired:
            raise _busy(last)
        if last is not None and last.running and last.options == _recorded(options):
            claimed = await self._jobs.claim(last)
            if claimed is None:
                raise _busy(last)
            return self._run(claimed)
        return self._run(await self._begun(live, options, job_id or secrets.token_hex(8)))

    async def cancel(self, name: str) -> Job:
        """Cancel the job that rebuilds a collection, in whichever worker it runs.

        Raises:
            NotFound: if no such job is running.
        """
        job = await self._jobs.find(name, REINDEX)
        if job is None or not job.running or not await self._jobs.cancel(job):
            raise NotFound(
                "running reindex of a collection",
                name,
                hint="search-collection-info shows the last job of the collection.",
            )
        self._generations.drop_soon()
        return job

    def cancel_soon(self, run: Run, reason: SearchError) -> None:
        """Cancel a job of this worker without waiting."""
        run.failure = reason
        task = asyncio.create_task(self._cancelled(run), name=f"cancel job {run.job.id}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def resume(self) -> None:
        """Continue the jobs that have no worker."""
        for job in await self._jobs.orphaned(REINDEX):
            if self._closed or job.collection in self._runs:
                continue
            claimed = await self._jobs.claim(job)
            if claimed is None:
                continue
            if claimed.lost >= _MOST_LOST:
                log.error("job %s of %s has failed too often, giving up", job.id, job.collection)
                await self._jobs.fail(claimed, _given_up(claimed))
                self._generations.drop_soon()
                continue
            log.info("continuing job %s of %s", job.id, job.collection)
            self._run(claimed)

    async def close(self) -> None:
        """Stop and release the jobs of this worker."""
        self._closed = True
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=_TO_END)
            for task in late:
                task.cancel()
        await asyncio.gather(*(run.give_back() for run in self._runs.values()))

    async def _begun(self, live: Collection, options: IndexOptions, job_id: str) -> Job:
        record = new_record(live.name)
        built = await self._rebuilding.begin(live, record, options)
        job = Job(
            id=job_id,
            kind=REINDEX,
            collection=live.name,
            record=record,
            options=_recorded(options),
            stage="reindexing",
            total=live.sources,
        )
        begun = await self._jobs.begin(job, built)
        if begun is None:
            await self._generations.drop(built.type)
            raise Busy(f"another worker is rebuilding {live.name!r}")
        # The generation of the previous job is now marked to be dropped.
        self._generations.drop_soon()
        return begun

    def _run(self, job: Job) -> Run:
        run = Run(self._jobs, job, self._work, self._publish)
        self._runs[job.collection] = run
        run.ended.add_done_callback(partial(self._forget, run))
        return run

    def _forget(self, run: Run, ended: asyncio.Task[Job]) -> None:
        if self._runs.get(run.job.collection) is run:
            del self._runs[run.job.collection]
        if not ended.cancelled() and (exc := ended.exception()) is not None:
            log.info("job %s of %s: %s", run.job.id, run.job.collection, exc)

    async def _work(self, run: Run) -> None:
        """Build the generation, with retries, until the job has ended."""
        job = run.job
        options = _options(job.options)
        backoff, waited, best = Backoff(cap=_LONGEST_PAUSE), 0.0, 0
        while True:
            try:
                await self._rebuilding.build(job.collection, job.record or "", options, run.report)
                return
            except SearchError as exc:
                failure = exc
            except Exception:
                name = incident()
                log.exception("incident %s in job %s", name, job.id)
                failure = SearchError(f"internal error, incident {name}")
            if run.progress.done > best:
                backoff, waited, best = Backoff(cap=_LONGEST_PAUSE), 0.0, run.progress.done
            if await self._is_over(run, failure, waited):
                return
            pause = backoff.delay(0.0)
            await asyncio.sleep(pause)
            waited += pause

    async def _is_over(self, run: Run, failure: SearchError, waited: float) -> bool:
        """Handle a failure; return True if the work must stop, False to retry."""
        progress = run.progress
        patient = failure.retryable and waited < self._patience
        if patient:
            progress.stage = f"waiting: {failure.code}"
        try:
            if not await self._jobs.renew(run.job, progress):
                return True
            if patient:
                log.warning("job %s of %s waits: %s", run.job.id, run.job.collection, failure)
                await run.report(progress.done, progress.total, progress.stage)
                return False
            run.failure = failure
            await self._jobs.fail(run.job, failure)
        except SearchError as exc:
            log.warning("the database is unavailable for job %s: %s", run.job.id, exc)
            return waited >= self._patience
        self._generations.drop_soon()
        return True

    async def _cancelled(self, run: Run) -> None:
        """Cancel a job, retrying until the database responds, so that no worker continues it."""
        backoff = Backoff(cap=_LONGEST_PAUSE)
        while True:
            try:
                await run.cancel()
                await self._generations.drop_due()
                return
            except SearchError as exc:
                log.warning("could not cancel job %s, will retry: %s", run.job.id, exc)
            await asyncio.sleep(backoff.delay(0.0))

    async def _current(self, name: str) -> Collection:
        found = await self._registry.get(name)
        current = await self._registry.reload(found.name)
        if current is None:
            raise NotFound("collection", name)
        return current


def _recorded(options: IndexOptions) -> dict[str, Any]:
    """Return options as recorded in the database, after a JSON round trip."""
    recorded: dict[str, Any] = json.loads(json.dumps(asdict(options)))
    return recorded


def _options(recorded: Mapping[str, Any]) -> IndexOptions:
    """Return the options of a job; fields unknown to this version are ignored."""
    known = {field.name for field in fields(IndexOptions)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recorded.items()
        if name in known
    }
    return IndexOptions(**given)


def _given_up(job: Job) -> SearchError:
    return SearchError(
        f"{job.lost} workers in a row were lost after {job.done} of {job.total} sources",
        hint="Check the workers' logs and memory limits, then start the reindex again.",
    )


def _busy(job: Job) -> Busy:
    return Busy(
        f"job {job.id} is rebuilding {job.collection!r}, {job.done} of {job.total} sources done",
        hint="search-collection-info shows its progress; search-reindex with cancel ends it.",
        retry_after=10.0,
    )
