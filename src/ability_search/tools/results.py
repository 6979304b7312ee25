"""Results of the eight tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ability_search.index.charts import CollectionGrowth, CollectionMap, TokenHistogram
from ability_search.wire import Result


class FailedDocument(Result):
    """A document that was not indexed."""

    source: str
    error: str
    code: str


class IndexResult(Result):
    """Result of search-index."""

    indexed: bool = True
    collection: str
    documents: int = Field(description="Documents in the call.")
    chunks: int = Field(description="Chunks stored by the call.")
    model: str
    dimensions: int
    added: int
    updated: int
    unchanged: int
    deduplicated: int = Field(
        description="Stored chunks that are near-duplicates of others, see dedupThreshold."
    )
    reused: int = Field(
        0,
        description="Stored chunks whose vectors were reused instead of computed.",
    )
    failed: list[FailedDocument]
    warnings: list[str] | None = None
    wanted: list[str] | None = Field(
        None, description="Sources to send again with content, see fileHash."
    )
    job_id: str
    took_ms: float


class SkippedFile(Result):
    """A file that was not indexed."""

    path: str
    reason: str


class IndexFileResult(IndexResult):
    """Result of search-index-file."""

    files: int = Field(description="Files read.")
    skipped: list[SkippedFile]
    removed: int = Field(description="Sources deleted because their files no longer exist.")


class Highlight(Result):
    """A match in a hit's content, offsets in characters."""

    start: int
    end: int
    text: str


class HitContext(Result):
    """A part of a document that contains a hit."""

    content: str
    start_line: int | None = None
    end_line: int | None = None
    chunks: list[str] = Field(description="ChunkIds, in document order.")


class Hit(Result):
    """A chunk returned for a query."""

    chunk_id: str
    collection: str | None = Field(None, description="Set if several collections were searched.")
    source: str
    title: str
    content: str
    score: float = Field(description="Score that orders the results, in [0, 1].")
    metadata: dict[str, Any]
    chunk_index: int
    total_chunks: int
    kind: str | None = None
    breadcrumb: str | None = None
    page: int | None = Field(None, description="Page it begins on, from 1, if the text has pages.")
    start_line: int | None = None
    end_line: int | None = None
    created_at: str | None = None
    scores: dict[str, float] = Field(description="Raw scores: cosine, BM25, the reranker's.")
    matched_via: list[str]
    highlights: list[Highlight] | None = None
    context: HitContext | None = Field(
        None, description="The content with the text around it, see expand."
    )
    merged: list[str] | None = Field(
        None, description="ChunkIds of further hits that the context contains."
    )
    truncated: Literal[True] | None = Field(
        None, description="Set if the content is cut to its beginning, see maxResultTokens."
    )
    explain: dict[str, Any] | None = None


class Degraded(Result):
    """Why an answer is less than what was requested."""

    reason: str
    code: str
    mode: str = Field(description="The mode used instead.")


class Understood(Result):
    """Exclusions and times recognised in a query, or set by its options."""

    excluded: list[str] | None = Field(None, description="Phrases; hits about them are demoted.")
    start: str | None = Field(
        None, alias="from", description="First day that hits should be about."
    )
    end: str | None = Field(None, alias="to", description="Last day that hits should be about.")


class Cut(Result):
    """A hit, or a part of it, that did not fit."""

    chunk_id: str
    tokens: int = Field(description="Number of tokens left out.")
    what: Literal["hit", "context", "end"] = Field(
        description="The whole hit, its context, or the end of its content."
    )


class Budget(Result):
    """Use of the token budget maxResultTokens."""

    max_tokens: int
    tokens: int = Field(description="Tokens used by the contents and contexts of the results.")
    cut: list[Cut] = Field(description="In the order of the hits.")
    truncated: bool = Field(description="Whether the first hit is cut short.")


class QueryResult(Result):
    """Result of search-query."""

    results: list[Hit]
    count: int
    query: str
    collection: str | list[str]
    mode: str
    model: str | None = None
    hyde: Literal[True] | None = None
    understood: Understood | None = Field(
        None, description="Exclusions and times from the query and its options."
    )
    degraded: Degraded | None = None
    budget: Budget | None = None
    warnings: list[str] | None = None
    timings: dict[str, float] = Field(
        description="Milliseconds per step; steps may run concurrently. total is the whole query."
    )
    explain: dict[str, Any] | None = None


class SimilarResult(Result):
    """Result of search-similar."""

    results: list[Hit]
    count: int
    source_chunk: Hit


class ReindexResult(Result):
    """Result of search-reindex."""

    collection: str
    deleted: int
    message: str
    state: str | None = Field(None, description="State of the job: running, done or cancelled.")
    generation: int | None = None
    chunks: int | None = None
    documents: int | None = None
    model: str | None = None
    dimensions: int | None = None
    reused: int | None = Field(
        None, description="Chunks whose vectors were reused instead of computed."
    )
    warnings: list[str] | None = None
    job_id: str | None = None
    took_ms: float | None = None


class DeleteResult(Result):
    """Result of search-delete."""

    deleted: int = Field(description="Chunks deleted.")
    collection: str
    source: str | None = Field(None, description="Set if one source was deleted.")


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
    """Result of search-collections."""

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
        description="interrupted: no worker runs it. A reindex is resumed by the next worker that"
        " checks; an index-file is completed by calling it again."
    )
    stage: str
    done: int = Field(description="Sources done.")
    total: int
    started_at: str
    updated_at: str
    error: JobError | None = None
    result: dict[str, Any] | None = Field(None, description="Result of the job, once done.")


class CollectionInfoResult(Result):
    """Result of search-collection-info."""

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
        description="Kinds made of each document, unless a call sets others.",
    )
    generation: int
    state: str
    embedded_percent: float = Field(
        description="Percentage of chunks in the vector index; near-duplicates are not in it."
    )
    created_at: str
    updated_at: str
    jobs: list[JobStatus] = Field([], description="The last job of each kind.")
    tokens: TokenHistogram | None = Field(None, description="Set if requested by include.")
    growth: CollectionGrowth | None = Field(None, description="Set if requested by include.")
    map: CollectionMap | None = Field(None, description="Set if requested by include.")
