"""A query as the caller writes it: one model for each option, with its default and description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, create_model

from ability_search.wire import Count, Input, Model, NonBlank, Share

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


class FullText(Input):
    """Full-text search over chosen fields, blended into the score."""

    enabled: bool = Field(True, description="false turns it off.")
    weight: Share = Field(0.3, description="Share of the score; 0 has no effect.")
    fields: list[FieldName] = Field(
        default_factory=lambda: ["title", "content"],
        min_length=1,
        max_length=16,
        description="Fields to search: title, content, metadata.<key>. Of metadata, texts and lists"
        " of texts, the first 128 words per key.",
        examples=[["title", "metadata.tags"]],
    )
    language: str | None = Field(
        None,
        max_length=64,
        description="Language of the query words; must be the collection's, because texts are"
        " analyzed at indexing time.",
    )


class Rules(Input):
    """Conditions on the value of a field."""

    contains: NonBlank | None = Field(
        None, max_length=1024, description="Text that the value contains, ignoring case."
    )
    priority: StrictBool | StrictInt | StrictFloat | StrictStr | None = Field(
        None, description="Value to equal; in a list, any element."
    )
    sort: Literal["asc", "desc"] | None = Field(
        None, description="The first values in this order gain most; texts, numbers and dates."
    )


class FieldRule(Input):
    """Rules on one field; each that matches multiplies the score by (1 + weight)."""

    weight: float = Field(0.5, ge=0, le=100, description="0 has no effect.")
    rules: Rules = Field(description="At least one rule.", examples=[{"priority": "stable"}])


class Reranker(Input):
    """A model that reads query and chunk together, for the first hits."""

    model: str | None = Field(
        None, min_length=1, max_length=256, description="Default: the configured model."
    )
    top: Count = Field(
        20, ge=1, le=200, description="Hits to rerank, from all collections together."
    )


class Feedback(Input):
    """Pseudo-relevance feedback: words and vectors of the first hits join the query."""

    chunks: Count = Field(3, ge=1, le=20, description="Maximum number of feedback hits.")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(
        0.35,
        description="Minimum cosine of a feedback hit, in keyword mode its normalized score. If no"
        " hit reaches it, the query is unchanged.",
    )
    terms: Count = Field(12, ge=0, le=64, description="Maximum words added to the keyword search.")
    weight: Share = Field(0.5, description="Weight of the feedback relative to the query itself.")


class Expand(Input):
    """Context expansion: text around each hit."""

    mode: Literal["neighbors", "section"] = Field(
        "neighbors", description="Adjacent chunks, or the whole section (same headings)."
    )
    window: Count = Field(1, ge=1, le=10, description="Chunks on each side, for neighbors.")


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
    full_text: FullText | None = Field(
        None,
        description="Full-text search over chosen fields, blended into the score.",
        examples=[{"weight": 0.3, "fields": ["title", "metadata.tags"]}],
    )
    rerank: dict[FieldName, FieldRule] = Field(
        default_factory=dict,
        max_length=16,
        description="Rules on fields that boost scores.",
        examples=[
            {
                "metadata.category": {"weight": 0.5, "rules": {"contains": "security"}},
                "createdAt": {"weight": 0.3, "rules": {"sort": "desc"}},
            }
        ],
    )
    reranker: Reranker | None = Field(
        None, description="Rerank the first hits with a model.", examples=[{"top": 20}]
    )
    prf: Feedback | bool | None = Field(
        None,
        description="Pseudo-relevance feedback: search again with words and vectors of the first"
        " hits.",
        examples=[True, {"chunks": 3, "terms": 12}],
    )
    as_of: NonBlank | None = Field(
        None,
        max_length=64,
        description="Time of the query: YYYY-MM-DD, the end of that day in UTC, or an instant"
        " (RFC 3339). Times in the query and ages in decay are relative to it. Documents indexed"
        " later are not excluded (filter by createdAt for that). Default: now.",
        examples=["2026-03-25", "2026-03-25T09:30:00+01:00"],
    )
    diversity: Share | None = Field(
        None,
        description="Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity only.",
        examples=[0.7],
    )
    max_per_source: Count | None = Field(
        None,
        ge=1,
        description="Maximum hits per source of a collection; other hits take their places.",
        examples=[2],
    )
    expand: Expand | Literal["neighbors", "section"] | None = Field(
        None,
        description="Context expansion: return the text around each hit; adjacent hits are merged.",
        examples=["neighbors", {"mode": "neighbors", "window": 2}],
    )
    max_result_tokens: Count | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Token budget for the whole answer; what does not fit is left out and named in"
        " budget. The smallest answer has about 400 tokens.",
        examples=[2000],
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
