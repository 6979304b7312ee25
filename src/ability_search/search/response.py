"""The result of a query: hits, and how they were found."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ability_search.wire import Result


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
    score: float = Field(
        description="Score that orders the results, in [0, 1]; minScore does not apply to it."
    )
    metadata: dict[str, Any]
    chunk_index: int
    total_chunks: int
    kind: str | None = None
    of: str | None = Field(None, description="Source of the document that it belongs to, if any.")
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
    mode: str = Field(description="The mode that was used.")
    collections: list[str] | None = Field(
        None, description="Of several collections, those searched so; the others are not affected."
    )


class Understood(Result):
    """Exclusions and times recognised in a query, or set by its options."""

    excluded: list[str] | None = Field(None, description="Phrases; hits about them are demoted.")
    start: str | None = Field(
        None, alias="from", description="First day that hits should be about."
    )
    end: str | None = Field(None, alias="to", description="Last day that hits should be about.")
    order: Literal["newest", "oldest"] | None = Field(
        None, description="Set if the newest or the oldest of the relevant hits come first."
    )


CutPart = Literal["hit", "context", "metadata", "end"]


class Cut(Result):
    """A hit, or a part of it, that did not fit."""

    chunk_id: str
    tokens: int = Field(description="Number of tokens left out.")
    what: CutPart = Field(
        description="The whole hit, its context, its metadata and context, or all that and the end"
        " of its content."
    )


class Budget(Result):
    """Use of the token budget maxResultTokens."""

    max_tokens: int
    tokens: int = Field(description="Tokens of the whole answer as JSON.")
    omitted: list[str] | None = Field(
        None, description="Fields left out of the whole answer: explain, highlights, timings."
    )
    cut: list[Cut] = Field(description="In the order of the hits.")
    unnamed: int | None = Field(
        None, description="Number of further cuts, which cut does not list."
    )
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
    relevance: float | None = Field(
        None,
        description="Best score by meaning and words, before options change it, 0 to 1; means the"
        " same in every query and collection.",
    )
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
    source_chunk: str = Field(description="Its chunkId; of a source, that of its first chunk.")
    source_content: str | None = Field(None, description="Text of that chunk.")
