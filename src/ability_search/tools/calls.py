"""A running call of a tool, the job that it may be, and the services that handlers call."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import BaseModel

from ability_search import unanswered
from ability_search.compute_turns import ComputeTurns
from ability_search.errors import Cancelled, DeadlineExceeded, SearchError
from ability_search.filters.predicate import matches
from ability_search.filters.tree import Filter
from ability_search.index.file_indexing import FileIndexing
from ability_search.index.generations import Generations
from ability_search.index.index_ports import IndexPorts
from ability_search.index.jobs import JobProgress, Jobs
from ability_search.index.maintenance import Maintenance
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.reindex import Reindexer
from ability_search.index.stored_sources import StoredSources
from ability_search.index.verification import SelfRepair
from ability_search.search.pipeline import QueryPipeline
from ability_search.store.records import Job
from ability_search.wire import COMPLETED, FAILED, PROGRESS
from kadi_client.tools import Call

_TO_ANSWER = 0.1
"""Share of a caller's timeout that is reserved for sending the answer."""
_TO_ANSWER_AT_LEAST = 0.1
_TO_ANSWER_AT_MOST = 1.0
"""Seconds."""
_WAITS = 3
"""Maximum number of reasons in an error."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the tools call."""

    ports: IndexPorts
    indexing: IndexPipeline
    sources: StoredSources
    files: FileIndexing
    generations: Generations
    jobs: Jobs
    reindexing: Reindexer
    self_repair: SelfRepair
    queries: QueryPipeline
    turns: ComputeTurns
    maintenance: Maintenance
    policy: Filter | None
    """Filter for the sources that callers may read; ``None`` if they may read all."""

    def may_read(self, source: str) -> bool:
        """Return whether callers may read a source."""
        return self.policy is None or matches(self.policy, {"source": source})


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call of a tool that runs."""

    call: Call
    limit: asyncio.Timeout
    services: Services

    @property
    def reason(self) -> SearchError:
        """Why the call is cancelled."""
        when = self.limit.when()
        if when is not None and asyncio.get_running_loop().time() >= when:
            return DeadlineExceeded("not completed within the caller's timeout")
        return Cancelled("cancelled")

    @asynccontextmanager
    async def recorded(
        self, kind: str, collection: str, job_id: str | None, *, after: float = 0.0
    ) -> AsyncIterator[RunningJob]:
        """Publish and record the block as a job, see :meth:`.Jobs.recorded`."""
        job = RunningJob(self, collection, job_id)
        record = Job(job.id, kind, collection)
        async with (
            job.announced(),
            self.services.jobs.recorded(record, after=after) as job.recorded,
        ):
            yield job


Handler = Callable[[Any, RunningCall], Awaitable[BaseModel]]
"""Returns the result of a call for its validated input."""


@asynccontextmanager
async def in_time(call: Call) -> AsyncIterator[asyncio.Timeout]:
    """Limit the block so that an answer can still reach the caller in time.

    Raises:
        DeadlineExceeded: if the block is not completed by then; it names what the block was
            waiting for.
    """
    with unanswered.recording() as waits:
        try:
            left = call.remaining
            if left is not None:
                kept_back = min(max(_TO_ANSWER * left, _TO_ANSWER_AT_LEAST), _TO_ANSWER_AT_MOST)
                left = max(0.0, left - kept_back)
            async with asyncio.timeout(left) as limit:
                yield limit
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise _too_late(waits) from exc


def _too_late(waits: Iterable[str]) -> DeadlineExceeded:
    """Return the error for a call whose time is up, with what it was waiting for."""
    problem = "not completed within the caller's timeout"
    reasons = list(islice(waits, _WAITS))
    if not reasons:
        return DeadlineExceeded(problem)
    hint = f"`ability-search doctor` checks what is away. {DeadlineExceeded.default_hint}"
    return DeadlineExceeded(f"{problem}: {'; '.join(reasons)}", hint=hint)


class RunningJob:
    """The events of a long call, and its record if it has one."""

    def __init__(self, running: RunningCall, collection: str, job_id: str | None) -> None:
        self._running = running
        self._collection = collection
        self.id = job_id or secrets.token_hex(8)
        self.recorded = JobProgress()

    @asynccontextmanager
    async def announced(self) -> AsyncIterator[None]:
        """Publish that the block completed or failed."""
        async with self.failing():
            yield
        await self._publish(COMPLETED)

    @asynccontextmanager
    async def failing(self) -> AsyncIterator[None]:
        """Publish a failure of the block."""
        try:
            yield
        except BaseException as exc:
            if isinstance(exc, SearchError):
                error = exc
            elif isinstance(exc, asyncio.CancelledError):
                error = self._running.reason
            else:
                error = SearchError("internal error; the answer has the incident id")
            await self._publish(FAILED, code=error.code, error=str(error))
            raise

    async def progress(self, done: int, total: int, stage: str) -> None:
        """Publish the progress, and record it if the job is."""
        recorded = self.recorded
        recorded.done, recorded.total, recorded.stage = done, total, stage
        await self._publish(PROGRESS, done=done, total=total, stage=stage)

    def end(self, total: int, result: Mapping[str, Any] | None = None) -> None:
        """Record the end, with the result if it has no record of its own."""
        self.recorded.done = self.recorded.total = total
        self.recorded.result = result

    async def _publish(self, channel: str, **data: object) -> None:
        about = {"jobId": self.id, "collection": self._collection}
        await self._running.call.publish(channel, {**about, **data})
