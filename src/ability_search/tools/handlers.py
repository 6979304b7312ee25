"""The eight tools; each validates its input, calls one service and returns its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from ability_search.errors import ConfigurationError
from ability_search.extension import loaded
from ability_search.index.jobs import Run, job_of, jobs_of
from ability_search.ops.metrics.metric_table import DEGRADED_ANSWERS, QUERY_STAGE_SECONDS
from ability_search.search.response import QueryResult, SimilarResult
from ability_search.search.similar import similar
from ability_search.store.records import FILES, INDEX, Job
from ability_search.store.values import Page, Read
from ability_search.tools import inputs, requests, responses, results
from ability_search.tools.boundary import failure, with_collection
from ability_search.tools.calls import Handler, RunningCall, RunningJob, Services, in_time
from ability_search.tools.table import TOOLS, offered_tools
from ability_search.tools.tool_row import ToolRow
from kadi_client import Raw
from kadi_client.tools import Call, Tool, encoded

SHORT_RUN = 2.0
"""Seconds up to which a search-index leaves no record: recording takes three round trips."""


def served_tools(services: Services) -> list[Tool]:
    """Return the eight tools, ready to be registered, and those of extensions that are offered.

    Raises:
        ConfigurationError: if the setting ``offer`` names what no extension has, or one lacks a
            handler of its tool.
    """
    rows = offered_tools(services.ports.settings.loading.offer)
    table = _Table(services)
    handlers: dict[str, Handler] = {
        row.name: getattr(table, row.name.removeprefix("search-").replace("-", "_"))
        for row in TOOLS
    }
    added = [row.name for row in rows if row.name not in handlers]
    handlers |= loaded().handlers(services, added)
    missing = [name for name in added if name not in handlers]
    if missing:
        raise ConfigurationError(
            f"{', '.join(missing)}: open_tools of no extension has a handler",
            hint="Correct the plugin whose register_tools names it, or leave its extension out.",
        )
    return [_tool(row, handlers[row.name], services) for row in rows]


def _tool(row: ToolRow, handler: Handler, services: Services) -> Tool:
    """Return the tool of a row; its failures are returned, not raised."""
    turns, work_of = services.turns, row.work or requests.work_of

    async def answered(value: BaseModel, call: Call) -> Raw | Mapping[str, Any]:
        async with in_time(call) as limit, turns.call(work=work_of(value)):
            answer = await handler(value, RunningCall(call, limit, services))
            # Its work is the number of objects in its lists.
            lists = (value for _, value in answer if isinstance(value, list))
            return await turns.run(lambda: encoded(answer), work=sum(map(len, lists)))

    tool = Tool.typed(
        row.name,
        row.description,
        row.params,
        answered,
        result=row.result,
        on_error=failure,
        max_values=services.ports.settings.limits.values,
    )

    async def handle(tool_input: dict[str, Any], call: Call) -> Any:
        answer = await tool.handler(tool_input, call)
        return with_collection(answer, tool_input) if isinstance(answer, dict) else answer

    return replace(tool, handler=handle)


class _Table:
    """The handlers of the eight tools, each named like its tool."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._limits = services.ports.settings.limits

    async def index(self, value: inputs.IndexInput, call: RunningCall) -> results.IndexResult:
        """search-index."""
        documents, refused = await asyncio.to_thread(
            requests.documents, value, self._limits, self._services.ports.added.read
        )
        async with call.recorded(INDEX, value.collection, value.job_id, after=SHORT_RUN) as job:
            report = await self._services.indexing.index(
                value.collection, documents, value, job.progress
            )
            report.documents += len(refused)
            report.failed += refused
            job.end(report.documents, responses.index_record(report))
        await self._services.maintenance.after_write(value.collection)
        return responses.index_result(report, job.id)

    async def index_file(
        self, value: inputs.IndexFileInput, call: RunningCall
    ) -> results.IndexFileResult:
        """search-index-file."""
        async with call.recorded(FILES, value.collection, value.job_id) as job:
            report = await self._services.files.index(value.collection, value, value, job.progress)
            job.end(report.documents, responses.index_record(report))
        await self._services.maintenance.after_write(value.collection)
        return responses.index_file_result(report, job.id)

    async def query(self, value: inputs.QueryInput, _call: RunningCall) -> QueryResult:
        """search-query."""
        return await answer_query(self._services, value)

    async def similar(self, value: inputs.SimilarInput, _call: RunningCall) -> SimilarResult:
        """search-similar."""
        policy = self._services.policy
        return await similar(
            self._services.queries,
            value.collection,
            value.chunk_id,
            value.source,
            limit=requests.limit(value.limit, self._limits),
            filter=requests.combined_filter(value.filter, None, (), self._limits, policy),
            min_score=value.min_score,
            shown=self._services.may_read,
        )

    async def reindex(self, value: inputs.ReindexInput, call: RunningCall) -> results.ReindexResult:
        """search-reindex."""
        if value.clear:
            deleted = await self._services.reindexing.clear(value.collection)
            text = f"deleted {deleted} chunks; the collection keeps its settings"
            return results.ReindexResult(collection=value.collection, deleted=deleted, message=text)
        if value.cancel:
            job = await self._services.reindexing.cancel(value.collection)
            return responses.ordered_result(job, "cancelled")
        announced = RunningJob(call, value.collection, value.job_id)
        async with announced.failing():
            run = await self._services.reindexing.start(
                value.collection, value, job_id=announced.id
            )
        if value.background:
            return responses.ordered_result(run.job, "running")
        return responses.reindex_result(await self._attended(run, call))

    async def _attended(self, run: Run, running: RunningCall) -> Job:
        """Wait for a job; a cancelled or expired call cancels it, a lost caller does not."""
        run.listener = running.call.publish
        try:
            return await run.finished()
        except asyncio.CancelledError:
            if not running.call.abandoned:
                self._services.reindexing.cancel_soon(run, running.reason)
            raise
        finally:
            run.listener = None

    async def delete(self, value: inputs.DeleteInput, _call: RunningCall) -> results.DeleteResult:
        """search-delete."""
        sources = value.sources if value.source is None else [value.source]
        deleted = await self._services.sources.delete(value.collection, sources)
        return results.DeleteResult(
            deleted=deleted, collection=value.collection, source=value.source
        )

    async def collections(
        self, _value: inputs.CollectionsInput, _call: RunningCall
    ) -> results.CollectionsResult:
        """search-collections."""
        registry = self._services.ports.registry
        found = await registry.all()
        return results.CollectionsResult(
            collections=[responses.summary(item, registry.doubts) for item in found]
        )

    async def collection_info(
        self, value: inputs.CollectionInfoInput, _call: RunningCall
    ) -> results.CollectionInfoResult:
        """search-collection-info."""
        ports = self._services.ports
        page = await self._services.sources.page(
            value.collection, limit=value.limit, cursor=value.cursor, children=value.children
        )
        (jobs,) = await ports.store.read([Read(jobs_of(value.collection))])
        assert isinstance(jobs, Page)
        return responses.collection_info(
            replace(page, sources=tuple(filter(self._services.may_read, page.sources))),
            list(map(job_of, jobs.items)),
            ports.registry.doubts,
            scan_below=ports.settings.ranking.scan_below,
        )


async def answer_query(services: Services, value: inputs.QueryInput) -> QueryResult:
    """Answer a query within the limits and the policy, and meter it.

    Raises:
        SearchError: if the query exceeds a limit, or cannot be answered.
    """
    ports = services.ports
    filter = requests.query_filter(value, ports.settings.limits, services.policy)
    result = await services.queries.answer(value, filter)
    for stage, milliseconds in result.timings.items():
        ports.meter.observe(QUERY_STAGE_SECONDS, milliseconds / 1e3, stage)
    if result.degraded is not None:
        ports.meter.add(DEGRADED_ANSWERS, 1, result.degraded.code)
    return result
