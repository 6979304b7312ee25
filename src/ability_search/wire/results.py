"""Results of the eight tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Result(BaseModel):
    """Base: camelCase names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class FailedDocument(Result):
    """A document that was left out."""

    source: str
    error: str
    code: str


class IndexResult(Result):
    """Of search-index."""

    indexed: bool = True
    collection: str
    documents: int = Field(description="Documents of the call.")
    chunks: int = Field(description="Chunks stored by the call.")
    model: str
    dimensions: int
    added: int
    updated: int
    unchanged: int
    deduplicated: int = Field(
        description="Of the chunks, those that another one stands for, see dedupThreshold."
    )
    reused: int = Field(
        0,
        description="Of the chunks, those whose vectors were stored before: nothing was embedded.",
    )
    failed: list[FailedDocument]
    warnings: list[str] | None = None
    wanted: list[str] | None = Field(
        None, description="Sources to send with their content, see fileHash."
    )
    job_id: str
    took_ms: float


class SkippedFile(Result):
    """A file that was left out."""

    path: str
    reason: str


class IndexFileResult(IndexResult):
    """Of search-index-file."""

    files: int = Field(description="Files read.")
    skipped: list[SkippedFile]
    removed: int = Field(description="Sources removed because their files are gone.")


class Highlight(Result):
    """A match in a hit's content, in characters."""

    start: int
    end: int
    text: str


class HitContext(Result):
    """A part of a document with a hit in it."""

    content: str
    start_line: int | None = None
    end_line: int | None = None
    chunks: list[str] = Field(description="ChunkIds, in the order of the text.")


class Hit(Result):
    """A chunk that was found."""

    chunk_id: str
    collection: str | None = Field(None, description="Where several collections were searched.")
    source: str
    title: str
    content: str
    score: float = Field(description="What the results are ordered by, in [0, 1].")
    metadata: dict[str, Any]
    chunk_index: int
    total_chunks: int
    kind: str | None = None
    breadcrumb: str | None = None
    page: int | None = Field(None, description="Where a text has pages: that it begins on, from 1.")
    start_line: int | None = None
    end_line: int | None = None
    created_at: str | None = None
    scores: dict[str, float] = Field(description="Raw scores: cosine, BM25, the reranker's.")
    matched_via: list[str]
    highlights: list[Highlight] | None = None
    context: HitContext | None = Field(
        None, description="Its content and what is around, see expand."
    )
    merged: list[str] | None = Field(
        None, description="ChunkIds of further hits, which the context holds."
    )
    truncated: Literal[True] | None = Field(
        None, description="Where only the beginning of the content is there, see maxResultTokens."
    )
    explain: dict[str, Any] | None = None


class Degraded(Result):
    """Why an answer is less than was asked for."""

    reason: str
    code: str
    mode: str = Field(description="What was searched instead.")


class Understood(Result):
    """What counted of a query besides its topic."""

    excluded: list[str] | None = Field(None, description="Hits about this are pushed down.")
    start: str | None = Field(
        None, alias="from", description="First of the days that hits should speak of."
    )
    end: str | None = Field(None, alias="to", description="Last of these days.")


class Cut(Result):
    """What did not fit."""

    chunk_id: str
    tokens: int = Field(description="Tokens that were left out.")
    what: Literal["hit", "context", "end"] = Field(
        description="The whole hit, its context, or the end of its content."
    )


class Budget(Result):
    """What became of maxResultTokens."""

    max_tokens: int
    tokens: int = Field(description="Tokens of the contents and contexts of the results.")
    cut: list[Cut] = Field(description="In the order of the hits.")
    truncated: bool = Field(description="Whether the first hit is cut short.")


class QueryResult(Result):
    """Of search-query."""

    results: list[Hit]
    count: int
    query: str
    collection: str | list[str]
    mode: str
    model: str | None = None
    hyde: Literal[True] | None = None
    understood: Understood | None = Field(
        None, description="Exclusions and times, of the query and of its options."
    )
    degraded: Degraded | None = None
    budget: Budget | None = None
    warnings: list[str] | None = None
    timings: dict[str, float] = Field(
        description="Milliseconds of each step, several of which may run at once; total is all."
    )
    explain: dict[str, Any] | None = None


class SimilarResult(Result):
    """Of search-similar."""

    results: list[Hit]
    count: int
    source_chunk: Hit


class ReindexResult(Result):
    """Of search-reindex."""

    collection: str
    deleted: int
    message: str
    state: str | None = Field(None, description="Of the job: running, done or cancelled.")
    generation: int | None = None
    chunks: int | None = None
    documents: int | None = None
    model: str | None = None
    dimensions: int | None = None
    reused: int | None = Field(
        None, description="Of the chunks, those whose vectors were stored before."
    )
    warnings: list[str] | None = None
    job_id: str | None = None
    took_ms: float | None = None


class DeleteResult(Result):
    """Of search-delete."""

    deleted: int = Field(description="Chunks deleted.")
    collection: str
    source: str | None = Field(None, description="Where one source was deleted.")


class CollectionSummary(Result):
    """A collection in a list."""

    name: str
    chunks: int
    sources: int
    min_tokens: int
    max_tokens: int
    avg_tokens: float
    model: str
    dimensions: int
    updated_at: str


class CollectionsResult(Result):
    """Of search-collections."""

    collections: list[CollectionSummary]


class JobError(Result):
    """Why a job failed."""

    code: str
    message: str
    hint: str


class JobStatus(Result):
    """The last job of its kind."""

    job_id: str
    kind: Literal["reindex", "index-file"]
    state: Literal["running", "interrupted", "done", "failed", "cancelled"] = Field(
        description="interrupted: no worker is on it. The next one that looks goes on with a"
        " reindex; an index-file is completed by calling it again."
    )
    stage: str
    done: int = Field(description="Sources done.")
    total: int
    started_at: str
    updated_at: str
    error: JobError | None = None
    result: dict[str, Any] | None = Field(None, description="What one came to that is done.")


class TokenBin(Result):
    """Chunks of about the same size."""

    min_tokens: int
    max_tokens: int
    chunks: int


class TokenHistogram(Result):
    """How large the chunks of documents are; titles, summaries, ... are left out."""

    bins: list[TokenBin] = Field(description="Smallest first; those in between that are empty too.")
    counted: int = Field(description="Chunks in all bins.")
    sampled: bool = Field(description="Whether a sample was counted, as there are so many.")


class GrowthPeriod(Result):
    """What was indexed in a period of time."""

    start: str
    sources: int
    chunks: int


class CollectionGrowth(Result):
    """When the documents that are stored now were indexed; titles, summaries, ... are left out."""

    unit: Literal["hour", "day", "week", "month", "year"]
    periods: list[GrowthPeriod] = Field(description="In UTC, oldest first, without empty ones.")


class MapPoint(Result):
    """A chunk on the map."""

    chunk_id: str
    source: str
    title: str
    excerpt: str = Field(description="How its content begins.")
    x: float
    y: float


class CollectionMap(Result):
    """The two directions in which the vectors of chunks differ most: principal components."""

    points: list[MapPoint]
    chunks: int = Field(
        description="Those in the vector index. If there are fewer points, they are a sample,"
        " always the same one."
    )
    explained_variance: list[float] = Field(
        min_length=2, max_length=2, description="Share of the variance that x and y show."
    )


class CollectionInfoResult(Result):
    """Of search-collection-info."""

    collection: str
    chunks: int
    min_tokens: int
    max_tokens: int
    avg_tokens: float
    sources: list[str]
    source_count: int
    next_cursor: str | None = None
    model: str
    dimensions: int
    similarity: str
    language: str
    kinds: list[str] = Field(
        default_factory=list,
        description="What is made of each document, unless a call says else.",
    )
    generation: int
    state: str
    embedded_percent: float = Field(
        description="Chunks in the vector index; near-duplicates are left out of it."
    )
    created_at: str
    updated_at: str
    jobs: list[JobStatus] = Field([], description="The last job of each kind.")
    tokens: TokenHistogram | None = Field(None, description="If included.")
    growth: CollectionGrowth | None = Field(None, description="If included.")
    map: CollectionMap | None = Field(None, description="If included.")
