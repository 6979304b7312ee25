"""Options of search-query beyond filters. Each is off unless set."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ability_search.wire import Count, Input, NonBlank, Share

FieldName = Annotated[
    NonBlank,
    Field(
        max_length=256,
        description="source, title, content, kind, createdAt; any other name is a metadata key,"
        " with or without the prefix metadata.",
    ),
]
Kind = Literal["title", "summary", "keywords", "propositions", "documents"]


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


class Temporal(Input):
    """Weight of dates if the query, timeRange or order asks for a time."""

    weight: Share | None = Field(
        None,
        description="Share of dates in the score; 0 ignores times, in the query too. Default:"
        " depends on how informative the other words are.",
    )
    sigma_days: float = Field(
        15.0,
        gt=0,
        le=36_500,
        description="Standard deviation of closeness to the period, in days.",
    )
    order: Literal["newest", "oldest"] | None = Field(
        None,
        description="Which of equally relevant hits come first, like 'latest X' and 'oldest X' in a"
        " query. Compares the dates that texts name, else when they were stored.",
    )


class TimeRange(Input):
    """A period that hits should be about; at least one end."""

    start: NonBlank | None = Field(
        None,
        alias="from",
        max_length=32,
        description="First day: YYYY-MM-DD, or an instant on it (RFC 3339). Default: open.",
        examples=["2026-01-01"],
    )
    end: NonBlank | None = Field(
        None,
        alias="to",
        max_length=32,
        description="Last day: YYYY-MM-DD, or an instant on it (RFC 3339). Default: open.",
        examples=["2026-03-31"],
    )


class Decay(Input):
    """Decay by age, and boost by use."""

    half_life_days: float = Field(
        365.0, gt=0, le=36_500, description="Half-life of a score, in days since indexing."
    )
    floor: Share = Field(0.3, description="Minimum factor at any age.")
    weight: Share = Field(1.0, description="0 has no effect, 1 the full effect.")
    agent_id: NonBlank | None = Field(
        None,
        max_length=128,
        description="Agent whose use counts: hits returned to its queries are recorded and score"
        " slightly higher for this agent only.",
    )


class Graph(Input):
    """Graph expansion: neighbours of the first hits over links and chunk order."""

    hops: Count = Field(1, ge=1, le=2, description="Maximum number of hops.")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(
        0.55, description="Minimum cosine of a neighbour."
    )
    kinds: list[NonBlank] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Kinds of links to follow. Default: all, and the order of chunks.",
        examples=[["derives_from", "references"]],
    )


class Expand(Input):
    """Context expansion: text around each hit."""

    mode: Literal["neighbors", "section"] = Field(
        "neighbors", description="Adjacent chunks, or the whole section (same headings)."
    )
    window: Count = Field(1, ge=1, le=10, description="Chunks on each side, for neighbors.")


class ExpandQuery(Input):
    """Query expansion by a language model, if the network has one."""

    method: Literal["terms", "stepBack"] = Field(
        "terms", description="Related words, or a more general question."
    )
    model: str | None = Field(
        None, min_length=1, max_length=256, description="Default: the configured model."
    )
