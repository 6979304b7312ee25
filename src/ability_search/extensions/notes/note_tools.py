"""The tools of the analysis of collections, whose documents are notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, model_validator

from ability_search.collection import Collection
from ability_search.documents import instant
from ability_search.extensions.notes.consolidation_report import Consolidation, Judge
from ability_search.extensions.notes.graph_analysis import GraphAnalysis
from ability_search.extensions.notes.graph_stages import strength
from ability_search.extensions.notes.overview import CollectionGrowth, CollectionMap, TokenHistogram
from ability_search.search.similar import start_chunk
from ability_search.search.stage import Ports
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.records import SourceLink
from ability_search.store.values import Links, Page, Put, Read, Records, of_collection
from ability_search.tools import requests
from ability_search.tools.inputs import InCollection, JobId
from ability_search.tools.tool_row import ToolRow
from ability_search.wire import Count, NonBlank, Result

if TYPE_CHECKING:
    from ability_search.tools.calls import RunningCall, Services

_LINKS = 1000
"""Links to read at once, the strongest first."""


class SourcePath(Result):
    """A path between two sources over links."""

    sources: list[str] = Field(description="From the first to the last.")
    via: list[str] = Field(description="Kind of each link.")
    strength: float = Field(
        description="Product of the weights of the links, halved for each after the first."
    )


class SourceConnection(Result):
    """The connection of two sources."""

    paths: list[SourcePath] = Field(description="The shortest first, then the strongest.")
    common: list[str] = Field(description="Sources that both are linked with, strongest first.")


async def connection(
    ports: Ports,
    name: str,
    start: str,
    end: str,
    *,
    hops: int,
    limit: int,
    shown: Callable[[str], bool],
) -> SourceConnection:
    """Return how two sources of a collection are connected; links are followed in both directions.

    One read for each source and each hop.

    Args:
        ports: Ports of a query.
        name: Their collection.
        start: Source where the paths begin.
        end: Source where they end, another one.
        hops: Maximum number of links of a path, 1 to 3.
        limit: Maximum number of paths, and of common neighbours.
        shown: Whether a source may be returned.

    Raises:
        NotFound: if there is no such collection, or no such source in it.
    """
    collection, _chunk = await start_chunk(ports, name, None, start, shown=shown)
    await start_chunk(ports, name, None, end, shown=shown)
    links: list[SourceLink] = []
    if collection.links:
        links = await _read(ports.store, collection, [start], shown)
        if hops > 1:
            links += await _read(ports.store, collection, [end], shown)
        if hops > 2:
            near = {link.target for link in links} | {link.source for link in links}
            links += await _read(ports.store, collection, sorted(near - {start, end}), shown)
    steps = _strongest(links)
    common = [source for source in steps[start] if source in steps[end]]
    common.sort(key=lambda each: (-steps[start][each].weight * steps[end][each].weight, each))
    found = sorted(
        _paths(steps, [start], end, hops),
        key=lambda path: (len(path.sources), -path.strength, path.sources),
    )
    return SourceConnection(paths=found[:limit], common=common[:limit] if hops > 1 else [])


async def _read(
    store: Store, collection: Collection, sources: Sequence[str], shown: Callable[[str], bool]
) -> list[SourceLink]:
    if not sources:
        return []
    found = await read_all(store, Read(Links(sources), collection, limit=_LINKS))
    return [link for link in found if shown(link.source) and shown(link.target)]


Steps = Mapping[str, Mapping[str, SourceLink]]


def _strongest(links: Iterable[SourceLink]) -> Steps:
    """Return the strongest link between two sources, by one and then by the other."""
    steps: defaultdict[str, dict[str, SourceLink]] = defaultdict(dict)
    for link in links:
        for one, other in ((link.source, link.target), (link.target, link.source)):
            known = steps[one].get(other)
            if known is None or (-link.weight, link.kind) < (-known.weight, known.kind):
                steps[one][other] = link
    return steps


def _paths(steps: Steps, begun: Sequence[str], end: str, hops: int) -> Iterable[SourcePath]:
    """Return all paths that continue ``begun``, and pass no source twice."""
    for source in steps.get(begun[-1], ()):
        path = [*begun, source]
        if source == end:
            taken = [steps[one][other] for one, other in zip(path, path[1:], strict=False)]
            yield SourcePath(
                sources=path,
                via=[link.kind for link in taken],
                strength=round(strength([link.weight for link in taken]), 6),
            )
        elif hops > 1 and source not in begun:
            yield from _paths(steps, path, end, hops - 1)


Included = Literal["tokens", "growth", "map", "graph", "consolidation"]
ANALYSIS = "analysis"
"""Kind of the jobs that analyse a collection, and of the record of the last report."""
CONSOLIDATION = "consolidation"
"""Kind of the jobs that consolidate a collection, and of the record of the last report."""
_REPORTS: Mapping[Included, str] = {"graph": ANALYSIS, "consolidation": CONSOLIDATION}
"""Parts of notes-overview that are reports, and the kinds of their records."""


class AnalyzeInput(InCollection):
    """Input of notes-analyze."""

    job_id: JobId = None


class ConsolidateInput(InCollection):
    """Input of notes-consolidate."""

    apply: bool = Field(
        False,
        description="Set near-duplicates aside, out of the indexes, and add the missing links.",
    )
    undo: bool = Field(
        False, description="Take back what the last apply changed; a second call, the one before."
    )
    judge: Judge = Field(
        "rules",
        description="Who decides on contradictions: rules, or a language model (chat), which also"
        " reads pairs that no rule found.",
    )
    job_id: JobId = None

    @model_validator(mode="after")
    def _one_thing(self) -> ConsolidateInput:
        if self.apply and self.undo:
            raise ValueError("apply and undo are mutually exclusive")
        return self


class OverviewInput(InCollection):
    """Input of notes-overview."""

    include: list[Included] = Field(
        ["tokens", "growth", "graph", "consolidation"],
        min_length=1,
        max_length=5,
        description="Parts to return. tokens: histogram of chunk sizes, to judge the chunking."
        " growth: how much was indexed when. map: sample of the chunks as points, close to each"
        " other if similar, for plotting; it is long. Each of these reads the chunks."
        " graph: the last report of notes-analyze. consolidation: the last report of"
        " notes-consolidate.",
    )
    map_points: Count = Field(1000, ge=1, le=5000, description="Maximum points on the map.")


class PathsInput(InCollection):
    """Input of notes-paths."""

    source: NonBlank = Field(
        max_length=4096, description="Source where the paths begin.", examples=["guide/install.md"]
    )
    to: NonBlank = Field(
        max_length=4096,
        description="Source where they end, another one.",
        examples=["guide/update.md"],
    )
    hops: Count = Field(3, ge=1, le=3, description="Maximum number of links of a path.")
    limit: Count = Field(10, ge=1, description="Maximum number of paths, and of sources in common.")

    @model_validator(mode="after")
    def _two_sources(self) -> PathsInput:
        if self.to == self.source:
            raise ValueError("to requires another source")
        return self


class Analyzed(GraphAnalysis):
    """Result of notes-analyze."""

    collection: str
    job_id: str


class Consolidated(Consolidation):
    """Result of notes-consolidate."""

    collection: str
    job_id: str


class CollectionOverview(Result):
    """Result of notes-overview; what was not requested is missing."""

    collection: str
    created_at: str
    updated_at: str
    tokens: TokenHistogram | None = None
    growth: CollectionGrowth | None = None
    map: CollectionMap | None = None
    graph: GraphAnalysis | None = Field(
        None, description="Missing too if the collection was never analysed."
    )
    consolidation: Consolidation | None = Field(
        None, description="Missing too if the collection was never consolidated."
    )


NOTES: tuple[ToolRow, ...] = (
    ToolRow(
        name="notes-overview",
        title="Overview of a collection",
        summary="Return the chunk sizes of a collection, its growth, a map of its chunks, and the"
        " last reports of notes-analyze and notes-consolidate.",
        usage="Use it to judge a collection as a whole; to find texts use search-query.",
        params=OverviewInput,
        result=CollectionOverview,
        lean=("collection", "include"),
        read_only=True,
        work=lambda value: value.map_points if "map" in value.include else 0,
    ),
    ToolRow(
        name="notes-paths",
        title="Paths between two sources",
        summary="Find the paths over links between two sources, and the sources that both are"
        " linked with.",
        usage="Use it to learn how two documents are related; for similar texts use"
        " search-similar.",
        params=PathsInput,
        result=SourceConnection,
        lean=("collection", "source", "to"),
        read_only=True,
    ),
    ToolRow(
        name="notes-analyze",
        title="Analyse a collection",
        summary="Analyse the graph of a collection's chunks, and store their centrality and novelty"
        " for the option boost of search-query.",
        usage="The texts stay as they are. notes-overview returns the last report again.",
        params=AnalyzeInput,
        result=Analyzed,
        lean=("collection",),
    ),
    ToolRow(
        name="notes-consolidate",
        title="Consolidate notes",
        summary="Report near-duplicates, contradictions, stale notes and missing links of a"
        " collection; with apply, set duplicates aside and add the links.",
        usage="Without apply and undo it changes nothing. notes-overview returns the last report"
        " again.",
        params=ConsolidateInput,
        result=Consolidated,
        lean=("collection", "apply", "undo"),
        destructive=True,
        idempotent=False,
    ),
)


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
