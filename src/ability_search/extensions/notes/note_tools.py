"""The tools of the analysis of collections, whose documents are notes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ability_search.extensions.notes.consolidation_report import Consolidation, Judge
from ability_search.extensions.notes.graph_analysis import Findings, GraphAnalysis
from ability_search.tools.inputs import InCollection, JobId
from ability_search.tools.tool_row import ToolRow
from ability_search.wire import Count, NonBlank, Result

Included = Literal["tokens", "growth", "map", "graph", "consolidation"]
Unit = Literal["minute", "hour", "day", "week", "month", "year"]


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


class TokenBin(Result):
    """Number of chunks in a size range."""

    min_tokens: int
    max_tokens: int
    chunks: int


class TokenHistogram(Result):
    """Histogram of chunk sizes of documents, without titles, summaries, ..."""

    bins: list[TokenBin] = Field(description="Smallest first, including empty bins in between.")
    counted: int = Field(description="Chunks in all bins.")
    sampled: bool = Field(description="Whether only a sample of the chunks was counted.")


class GrowthPeriod(Result):
    """Counts of what was indexed in a period of time."""

    start: str
    sources: int
    chunks: int


class CollectionGrowth(Result):
    """Times at which the stored documents were indexed, without titles, summaries, ..."""

    unit: Unit
    periods: list[GrowthPeriod] = Field(description="In UTC, oldest first, without empty periods.")


class MapPoint(Result):
    """A chunk on the map."""

    chunk_id: str
    source: str
    title: str
    excerpt: str = Field(description="Beginning of its content.")
    x: float
    y: float


class CollectionMap(Findings):
    """Map of the chunks' vectors along their first two principal components."""

    points: list[MapPoint]
    chunks: int = Field(
        description="Chunks in the vector index. If there are fewer points, they are a sample,"
        " always the same one."
    )
    explained_variance: list[float] = Field(
        min_length=2, max_length=2, description="Share of the variance along x and y."
    )


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
