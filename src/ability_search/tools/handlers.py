"""The eight tools; each validates its input, calls one service and returns its result."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from ability_search.compute_turns import ComputeTurns
from ability_search.errors import Cancelled, DeadlineExceeded, SearchError
from ability_search.extensions.notes.consolidator import Consolidator
from ability_search.extensions.notes.graph_analyzer import GraphAnalyzer
from ability_search.extensions.notes.overview import measure
from ability_search.extensions.notes.source_paths import connection
from ability_search.extensions.sessions.sessions import Sessions
from ability_search.filters.predicate import matches
from ability_search.index.file_indexing import FileIndexing
from ability_search.index.generations import Generations
from ability_search.index.index_calls import Progress
from ability_search.index.index_ports import IndexPorts
from ability_search.index.jobs import Jobs, Run, job_of, jobs_of
from ability_search.index.jobs import Progress as JobProgress
from ability_search.index.maintenance import Maintenance
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.reindex import Reindexer
from ability_search.index.stored_sources import StoredSources
from ability_search.index.verification import SelfRepair
from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import DEGRADED_ANSWERS, QUERY_STAGE_SECONDS
from ability_search.search.pipeline import QueryPipeline
from ability_search.search.response import QueryResult, SimilarResult
from ability_search.search.similar import similar
from ability_search.store.records import ANALYSIS, CONSOLIDATION, FILES, INDEX, Job
from ability_search.store.values import Page, Put, Read, Record, Records, of_collection
from ability_search.tools import inputs, requests, responses, results
from ability_search.tools.boundary import failure
from ability_search.tools.table import TOOLS, ToolRow
from ability_search.wire import COMPLETED, FAILED, PROGRESS
from kadi_client import Raw
from kadi_client.tools import Call, Tool, encoded

_TO_ANSWER = 0.1
"""Share of a caller's timeout that is reserved for sending the answer."""
_TO_ANSWER_AT_LEAST = 0.1
_TO_ANSWER_AT_MOST = 1.0
"""Seconds."""

_SHORT_RUN = 2.0
"""Seconds up to which a search-index leaves no record: recording takes three round trips."""

_REPORTS = {"graph": ANALYSIS, "consolidation": CONSOLIDATION}
"""Parts of search-collection-info that are reports, and the kinds of their records."""

Handler = Callable[[Any, "_Admitted"], Awaitable[BaseModel]]


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
    sessions: Sessions
    queries: QueryPipeline
    turns: ComputeTurns
    maintenance: Maintenance
    analyzer: GraphAnalyzer
    consolidator: Consolidator


def search_tools(services: Services) -> list[Tool]:
    """Return the tools, ready to be registered."""
    table = _Table(services)
    return [
        table.tool(row, getattr(table, row.name.removeprefix("search-").replace("-", "_")))
        for row in TOOLS
    ]


class _Table:
    """The handlers of the tools, each named like its tool."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._limits = services.ports.settings.limits
        self._policy = requests.read_policy(services.ports.settings.reading)

    def tool(self, row: ToolRow, handler: Handler) -> Tool:
        """Return the tool of a row; its failures are returned, not raised."""

        async def admitted(value: BaseModel, call: Call) -> Raw | Mapping[str, Any]:
            turns = self._services.turns
            try:
                async with _in_time(call) as limit, turns.call(work=requests.work_of(value)):
                    answer = await handler(value, _Admitted(call, limit))
                    return await turns.run(lambda: encoded(answer), work=_entries(answer))
            except Exception as exc:  # noqa: BLE001 - the boundary, see failure()
                return failure(exc, row.name, _collection_of(value))

        return Tool.typed(
            row.name,
            row.description,
            row.params,
            admitted,
            result=row.result,
            on_error=failure,
            max_values=self._limits.values,
        )

    def _may_read(self, source: str) -> bool:
        return self._policy is None or matches(self._policy, {"source": source})

    async def index(self, value: inputs.IndexInput, call: _Admitted) -> results.IndexResult:
        """search-index."""
        job = _Job(call, value.job_id)
        if value.session is not None:
            report, state = await self._services.sessions.write(value.session, job.progress)
            await self._services.maintenance.after_write(report.collection)
            result = responses.index_result(report, job.id)
            return result.model_copy(update={"session": state})
        documents, refused = await asyncio.to_thread(
            requests.documents, value, self._limits, self._services.ports.added.read
        )
        async with self._recorded(job, INDEX, value.collection, after=_SHORT_RUN):
            report = await self._services.indexing.index(
                value.collection, documents, value, job.progress
            )
            report.documents += len(refused)
            report.failed += refused
            job.end(report.documents, responses.index_record(report))
        await self._services.maintenance.after_write(value.collection)
        return responses.index_result(report, job.id)

    async def index_file(
        self, value: inputs.IndexFileInput, call: _Admitted
    ) -> results.IndexFileResult:
        """search-index-file."""
        job = _Job(call, value.job_id)
        async with self._recorded(job, FILES, value.collection):
            report = await self._services.files.index(value.collection, value, value, job.progress)
            job.end(report.index.documents, responses.index_record(report.index))
        await self._services.maintenance.after_write(value.collection)
        return responses.index_file_result(report, job.id)

    @asynccontextmanager
    async def _recorded(
        self, job: _Job, kind: str, collection: str, *, after: float = 0.0
    ) -> AsyncIterator[None]:
        """Publish and record the block as a job, see :meth:`Jobs.recorded`."""
        record = Job(job.id, kind, collection)
        async with (
            job.announced(collection),
            self._services.jobs.recorded(record, after=after) as job.recorded,
        ):
            yield

    async def query(self, value: inputs.QueryInput, _call: _Admitted) -> QueryResult:
        """search-query."""
        filter = requests.query_filter(value, self._limits, self._policy)
        result = await self._services.queries.answer(value, filter)
        _meter(self._services.ports.meter, result)
        return result

    async def similar(self, value: inputs.SimilarInput, _call: _Admitted) -> SimilarResult:
        """search-similar."""
        name, limit = value.collection, requests.limit(value.limit, self._limits)
        queries, shown = self._services.queries, self._may_read
        if value.source is not None and value.to is not None:
            ends = value.source, value.to
            return await connection(
                queries.ports, name, *ends, hops=value.hops, limit=limit, shown=shown
            )
        filter = requests.combined_filter(value.filter, None, (), self._limits, self._policy)
        return await similar(
            queries,
            name,
            value.chunk_id,
            value.source,
            limit=limit,
            filter=filter,
            min_score=value.min_score,
            shown=shown,
        )

    async def reindex(self, value: inputs.ReindexInput, call: _Admitted) -> results.ReindexResult:
        """search-reindex."""
        if value.clear:
            deleted = await self._services.reindexing.clear(value.collection)
            return responses.cleared_result(value.collection, deleted)
        if value.cancel:
            job = await self._services.reindexing.cancel(value.collection)
            return responses.cancelled_result(job)
        if value.analyze:
            return await self._analyzed(value, call)
        if value.consolidate is not None:
            return await self._consolidated(value.collection, value.consolidate, value.job_id, call)
        announced = _Job(call, value.job_id)
        async with announced.failing(value.collection):
            run = await self._services.reindexing.start(
                value.collection, value, job_id=announced.id
            )
        if value.background:
            return responses.started_result(run.job)
        return responses.reindex_result(await self._attended(run, call))

    async def _analyzed(self, value: inputs.ReindexInput, call: _Admitted) -> results.ReindexResult:
        collection = await self._services.ports.registry.get(value.collection)
        job = _Job(call, value.job_id)
        async with self._recorded(job, ANALYSIS, value.collection):
            analysis = await self._services.analyzer.analyze(collection, job.progress)
            await self._report(ANALYSIS, value.collection, analysis)
            job.end(analysis.chunks)
        return responses.analyzed_result(value.collection, analysis, job.id)

    async def _consolidated(
        self, name: str, wanted: inputs.Consolidate, job_id: str | None, call: _Admitted
    ) -> results.ReindexResult:
        await self._services.ports.registry.get(name)
        collection = await self._services.ports.registry.current(name)
        job = _Job(call, job_id)
        async with self._recorded(job, CONSOLIDATION, name):
            found = await self._services.consolidator.consolidate(
                collection,
                job.progress,
                judge=wanted.judge,
                apply=wanted.apply,
                undo=wanted.undo,
            )
            await self._report(CONSOLIDATION, name, found.listed())
            job.end(found.notes)
        self._services.maintenance.schedule(name)
        return responses.consolidated_result(name, found, job.id)

    async def _report(self, kind: str, name: str, report: BaseModel) -> None:
        """Store the last report of a kind on a collection."""
        fields = {"report": report.model_dump(by_alias=True)}
        await self._services.ports.store.commit([Put(kind, of_collection(name), (), fields)])

    async def _attended(self, run: Run, admitted: _Admitted) -> Job:
        """Wait for a job; a cancelled or expired call cancels it, a lost caller does not."""
        run.listener = admitted.call.publish
        try:
            return await run.finished()
        except asyncio.CancelledError:
            if not admitted.call.abandoned:
                self._services.reindexing.cancel_soon(run, admitted.reason)
            raise
        finally:
            run.listener = None

    async def delete(self, value: inputs.DeleteInput, _call: _Admitted) -> results.DeleteResult:
        """search-delete."""
        if value.session is not None:
            erased = await self._services.sessions.erase(value.session)
            return results.DeleteResult(
                deleted=0 if erased.dry_run else erased.history,
                collection=value.session.collection,
                session=erased,
            )
        sources = value.sources if value.source is None else [value.source]
        deleted = await self._services.sources.delete(value.collection, sources)
        return results.DeleteResult(
            deleted=deleted, collection=value.collection, source=value.source
        )

    async def collections(
        self, value: inputs.CollectionsInput, _call: _Admitted
    ) -> results.CollectionsResult:
        """search-collections."""
        if value.session is not None:
            history = await self._services.ports.registry.reload(value.session.collection)
            return results.CollectionsResult(
                collections=[responses.summary(history)] if history else [],
                session=await self._services.sessions.read(value.session),
            )
        found = await self._services.ports.registry.all()
        return results.CollectionsResult(collections=[responses.summary(item) for item in found])

    async def collection_info(
        self, value: inputs.CollectionInfoInput, _call: _Admitted
    ) -> results.CollectionInfoResult:
        """search-collection-info."""
        page = await self._services.sources.page(
            value.collection, limit=value.limit, cursor=value.cursor, children=value.children
        )
        jobs, reports = await self._recorded_of(value.collection, value.include)
        overview = await measure(
            self._services.ports.store,
            self._services.ports.registry,
            page.collection,
            requests.overview(value),
        )
        ranking = self._services.ports.settings.ranking
        page = replace(page, sources=tuple(filter(self._may_read, page.sources)))
        if overview.map is not None:
            points = [each for each in overview.map.points if self._may_read(each.source)]
            overview = replace(overview, map=overview.map.model_copy(update={"points": points}))
        graph = responses.analysis(reports.get(ANALYSIS, ()))
        if graph is not None:
            graph = graph.of_sources(self._may_read)
        notes = responses.consolidation(reports.get(CONSOLIDATION, ()))
        if notes is not None:
            notes = notes.of_sources(self._may_read)
        return responses.collection_info(
            page, jobs, overview, graph, notes, scan_below=ranking.scan_below
        )

    async def _recorded_of(
        self, name: str, include: Sequence[str]
    ) -> tuple[list[Job], Mapping[str, Sequence[Record]]]:
        """Return the jobs of a collection, and the records of included reports by their kind."""
        kinds = [kind for part, kind in _REPORTS.items() if part in include]
        of = [jobs_of(name), *(Records(kind, of_collection(name)) for kind in kinds)]
        pages = await self._services.ports.store.read(list(map(Read, of)))
        jobs, *reports = [page.items if isinstance(page, Page) else () for page in pages]
        return list(map(job_of, jobs)), dict(zip(kinds, reports, strict=True))


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A running call."""

    call: Call
    limit: asyncio.Timeout

    @property
    def reason(self) -> SearchError:
        """Return why the call is cancelled."""
        when = self.limit.when()
        if when is not None and asyncio.get_running_loop().time() >= when:
            return DeadlineExceeded("not completed within the caller's timeout")
        return Cancelled("cancelled")


@asynccontextmanager
async def _in_time(call: Call) -> AsyncIterator[asyncio.Timeout]:
    """Limit the block so that an answer can still reach the caller in time.

    Raises:
        DeadlineExceeded: if the block is not completed by then.
    """
    try:
        async with asyncio.timeout(_time_left(call)) as limit:
            yield limit
    except TimeoutError as exc:
        if not limit.expired():
            raise
        raise DeadlineExceeded("not completed within the caller's timeout") from exc


def _time_left(call: Call) -> float | None:
    remaining = call.remaining
    if remaining is None:
        return None
    kept_back = min(max(_TO_ANSWER * remaining, _TO_ANSWER_AT_LEAST), _TO_ANSWER_AT_MOST)
    return max(0.0, remaining - kept_back)


class _Job:
    """The events of a long call."""

    def __init__(self, admitted: _Admitted, job_id: str | None) -> None:
        self._admitted = admitted
        self.id = job_id or secrets.token_hex(8)
        self.recorded: JobProgress | None = None

    @asynccontextmanager
    async def announced(self, collection: str) -> AsyncIterator[None]:
        """Publish that the block completed or failed."""
        async with self.failing(collection):
            yield
        about = {"jobId": self.id, "collection": collection}
        await self._admitted.call.publish(COMPLETED, about)

    @asynccontextmanager
    async def failing(self, collection: str) -> AsyncIterator[None]:
        """Publish a failure of the block."""
        about = {"jobId": self.id, "collection": collection}
        try:
            yield
        except BaseException as exc:
            error = exc if isinstance(exc, SearchError) else self._unexpected(exc)
            await self._admitted.call.publish(
                FAILED, {**about, "code": error.code, "error": str(error)}
            )
            raise

    def _unexpected(self, exc: BaseException) -> SearchError:
        if not isinstance(exc, asyncio.CancelledError):
            return SearchError("internal error; the answer has the incident id")
        return self._admitted.reason

    async def progress(self, progress: Progress) -> None:
        """Publish the progress, and record it if the job is."""
        if self.recorded is not None:
            self.recorded.done, self.recorded.total = progress.done, progress.total
            self.recorded.stage = progress.stage
        await self._admitted.call.publish(
            PROGRESS,
            {
                "jobId": self.id,
                "collection": progress.collection,
                "done": progress.done,
                "total": progress.total,
                "stage": progress.stage,
            },
        )

    def end(self, total: int, result: Mapping[str, Any] | None = None) -> None:
        """Record the end, with the result if it has no record of its own."""
        if self.recorded is not None:
            self.recorded.done = self.recorded.total = total
            self.recorded.result = result


def _entries(answer: BaseModel) -> int:
    """Return the number of objects in the lists of an answer."""
    return sum(len(value) for _, value in answer if isinstance(value, list))


def _meter(meter: Meter, result: QueryResult) -> None:
    for stage, milliseconds in result.timings.items():
        meter.observe(QUERY_STAGE_SECONDS, milliseconds / 1e3, stage)
    if result.degraded is not None:
        meter.add(DEGRADED_ANSWERS, 1, result.degraded.code)


def _collection_of(value: BaseModel) -> str | None:
    collection = getattr(value, "collection", None)
    return collection if isinstance(collection, str) else None
