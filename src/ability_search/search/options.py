"""A query as the caller writes it: one model for each option, with its default and description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from ability_search.wire import Count, Input, Model, NonBlank

FieldName = Annotated[
    NonBlank,
    Field(
        max_length=256,
        description="source, title, content, kind, createdAt; any other name is a metadata key,"
        " with or without the prefix metadata.",
    ),
]
ChunkId = Annotated[NonBlank, Field(max_length=4200)]
Mode = Literal["semantic", "keyword", "hybrid"]


class Fusion(Input):
    """Fusion of the results of several retrievers."""

    method: Literal["convex", "rrf"] = Field(
        description="Convex combination, or reciprocal rank fusion."
    )
    k: float | None = Field(None, ge=0, le=10_000, description="Rank constant of rrf.")
    weights: dict[Literal["semantic", "keyword"], Annotated[float, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Weights of the retrievers.",
        examples=[{"semantic": 0.7, "keyword": 0.3}],
    )


Collections = str | Annotated[list[str], Field(min_length=1, max_length=1000)]


class QueryInput(Input):
    """Input of search-query, without the options of extensions."""

    collection: Collections = Field(
        description="A collection, a list of collections, or * for all of them.",
        examples=["docs", ["docs", "notes"], "*"],
    )
    query: NonBlank = Field(description="What to search for.", examples=["how do I install it"])
    queries: list[NonBlank] = Field(
        default_factory=list,
        max_length=8,
        description="Further phrasings of the query, each searched like it; their rankings are"
        " fused. Highlights and the reranker use the query itself.",
        examples=[["installation steps", "set it up on Linux"]],
    )
    limit: Count = Field(10, ge=1, description="Maximum number of results.")
    offset: Count = Field(0, ge=0, le=10_000, description="Number of results to skip.")
    mode: Mode = Field(
        "hybrid",
        description="semantic: by embedding; keyword: by words (exact BM25); hybrid: both.",
    )
    model: Model = None
    filter: dict[str, Any] | None = Field(
        None,
        description="Filter on chunks: $and $or $not over conditions on source, title, kind,"
        " createdAt, metadata.*.",
        examples=[{"metadata.lang": "en", "metadata.year": {"$gte": 2024}}],
    )
    sources: list[NonBlank] | None = Field(
        None,
        max_length=256,
        description="Globs: search only sources that match one. An empty list is an error.",
        examples=[["guide/**"]],
    )
    exclude_sources: list[NonBlank] = Field(
        default_factory=list,
        max_length=256,
        description="Globs: sources that match one are excluded; they never leave the database.",
        examples=[["drafts/**", "**/CHANGELOG.md"]],
    )
    min_score: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Minimum cosine, scores.semantic of a hit, in semantic and hybrid mode; minimum"
        " normalized BM25 score in keyword mode and if no embedder answers, with a warning.",
        examples=[0.3],
    )
    min_signals: Count | None = Field(
        None,
        ge=1,
        le=16,
        description="Minimum number of retrievers that found a hit, as matchedVia lists them, each"
        " among its first candidates.",
        examples=[2],
    )
    hypothetical_answer: NonBlank | None = Field(
        None,
        description="Hypothetical answer to embed instead of the query (HyDE).",
        examples=["The archive is copied to tape every night at two."],
    )
    fusion: Fusion | None = Field(
        None,
        description="Fusion of semantic and keyword results. Default: as configured.",
        examples=[{"method": "convex", "weights": {"semantic": 0.5, "keyword": 0.5}}],
    )
    as_of: NonBlank | None = Field(
        None,
        max_length=64,
        description="Time of the query: YYYY-MM-DD, the end of that day in UTC, or an instant"
        " (RFC 3339). Times in the query and ages in decay are relative to it. Documents indexed"
        " later are not excluded (filter by createdAt for that). Default: now.",
        examples=["2026-03-25", "2026-03-25T09:30:00+01:00"],
    )
    max_per_source: Count | None = Field(
        None,
        ge=1,
        description="Maximum hits per source of a collection; other hits take their places.",
        examples=[2],
    )
    highlights: bool = Field(False, description="Return the matched places of each hit.")
    explain: bool = Field(False, description="Return how each score was computed.")


def with_options(options: Sequence[type[QueryInput]]) -> type[QueryInput]:
    """Return the input of search-query with the options of extensions.

    Args:
        options: Models with further fields.
    """
    # The fields of the last base come first.
    bases: tuple[type[QueryInput], ...] = (*options[::-1], QueryInput)
    return create_model("QueryInput", __base__=bases, __doc__="Input of search-query.")
