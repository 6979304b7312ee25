"""The handlers of the tools of notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from ability_search.documents import instant
from ability_search.extensions.notes.note_tools import (
    Analyzed,
    AnalyzeInput,
    CollectionOverview,
    Consolidated,
    ConsolidateInput,
    Included,
    OverviewInput,
    PathsInput,
    SourceConnection,
)
from ability_search.extensions.notes.source_paths import connection
from ability_search.store.values import Page, Put, Read, Records, of_collection
from ability_search.tools import requests

if TYPE_CHECKING:
    from ability_search.tools.calls import RunningCall, Services

ANALYSIS = "analysis"
"""Kind of the jobs that analyse a collection, and of the record of the last report."""
CONSOLIDATION = "consolidation"
"""Kind of the jobs that consolidate a collection, and of the record of the last report."""
_REPORTS: Mapping[Included, str] = {"graph": ANALYSIS, "consolidation": CONSOLIDATION}
"""Parts of notes-overview that are reports, and the kinds of their records."""


class NoteTools:
    """The handlers of the tools, each named like its tool."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.ports.store
        self._registry = services.ports.registry

    async def overview(self, value: OverviewInput, _call: RunningCall) -> CollectionOverview:
        """notes-overview."""
        from ability_search.extensions.notes.overview import measure

        collection = await self._registry.get(value.collection, fresh=True)
        charts = set(value.include) - _REPORTS.keys()
        measured: Mapping[str, object] = {}
        if charts:
            measured = await measure(
                self._store, self._registry, collection, charts, points=value.map_points
            )
        found = CollectionOverview(
            collection=collection.public_name,
            created_at=instant(collection.created_at),
            updated_at=instant(collection.updated_at),
            **measured,
            **await self._last_reports(value.collection, value.include),
        )
        shown = self._services.may_read
        found.map = found.map and found.map.of_sources(shown)
        found.graph = found.graph and found.graph.of_sources(shown)
        found.consolidation = found.consolidation and found.consolidation.of_sources(shown)
        return found

    async def _last_reports(self, name: str, include: Sequence[Included]) -> dict[str, object]:
        """Return the included reports that are stored, by their part."""
        parts = [part for part in _REPORTS if part in include]
        asks = [Read(Records(_REPORTS[part], of_collection(name))) for part in parts]
        pages = await self._store.read(asks) if asks else []
        return {
            part: page.items[0].fields["report"]
            for part, page in zip(parts, pages, strict=True)
            if isinstance(page, Page) and page.items
        }

    async def paths(self, value: PathsInput, _call: RunningCall) -> SourceConnection:
        """notes-paths."""
        return await connection(
            self._services.queries.ports,
            value.collection,
            value.source,
            value.to,
            hops=value.hops,
            limit=requests.limit(value.limit, self._services.ports.settings.limits),
            shown=self._services.may_read,
        )

    async def analyze(self, value: AnalyzeInput, call: RunningCall) -> Analyzed:
        """notes-analyze."""
        from ability_search.extensions.notes.graph_analyzer import analyze

        collection = await self._registry.get(value.collection)
        async with call.recorded(ANALYSIS, value.collection, value.job_id) as job:
            analysis = await analyze(self._store, collection, job.progress)
            await self._report(ANALYSIS, value.collection, analysis)
            job.end(analysis.chunks)
        shown = analysis.of_sources(self._services.may_read)
        return Analyzed(**dict(shown), collection=value.collection, job_id=job.id)

    async def consolidate(self, value: ConsolidateInput, call: RunningCall) -> Consolidated:
        """notes-consolidate."""
        from ability_search.extensions.notes.consolidator import consolidate

        name = value.collection
        collection = await self._registry.get(name, fresh=True)
        async with call.recorded(CONSOLIDATION, name, value.job_id) as job:
            options = value.model_dump(include={"judge", "apply", "undo"})
            found = await consolidate(self._services.ports, collection, job.progress, **options)
            listed = found.listed()
            await self._report(CONSOLIDATION, name, listed)
            job.end(found.notes)
        self._services.maintenance.schedule(name)
        shown = listed.of_sources(self._services.may_read)
        return Consolidated(**dict(shown), collection=name, job_id=job.id)

    async def _report(self, kind: str, name: str, report: BaseModel) -> None:
        """Store the last report of a kind on a collection."""
        fields = {"report": report.model_dump(by_alias=True)}
        await self._store.commit([Put(kind, of_collection(name), (), fields)])
