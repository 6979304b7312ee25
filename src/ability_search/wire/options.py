"""Options of search-query beyond arms and filters. Each is off unless said."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ability_search.wire.base import Count, Input, NonBlank, Share

FieldName = Annotated[
    NonBlank,
    Field(
        max_length=256,
        description="source, title, content, kind, createdAt; anything else is a key of the"
        " metadata, with or without metadata. in front.",
    ),
]
Kind = Literal["title", "summary", "keywords", "propositions", "documents"]


class Fusion(Input):
    """How the lists of the arms become one."""

    method: Literal["convex", "rrf"] = Field(description="Convex combination, or rank fusion.")
    k: float | None = Field(None, ge=0, le=10_000, description="Rank constant of rrf.")
    weights: dict[Literal["semantic", "keyword"], Annotated[float, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Weights of the arms.",
        examples=[{"semantic": 0.7, "keyword": 0.3}],
    )


class FullText(Input):
    """A keyword search over chosen fields that takes part in the order."""

    enabled: bool = Field(True, description="false switches it off.")
    weight: Share = Field(0.3, description="Its share of the score; 0 changes nothing.")
    fields: list[FieldName] = Field(
        default_factory=lambda: ["title", "content"],
        min_length=1,
        max_length=16,
        description="title, content, metadata.<key>: where the words are looked for. Of metadata"
        " texts and lists of texts, of each key the first 128 words.",
        examples=[["title", "metadata.tags"]],
    )
    language: str | None = Field(
        None,
        max_length=64,
        description="Language of the words; it must be the collection's own, as texts are"
        " analyzed when they are indexed.",
    )


class Rules(Input):
    """What is looked for in a field."""

    contains: NonBlank | None = Field(
        None, max_length=1024, description="Text within the value, upper or lower case."
    )
    priority: StrictBool | StrictInt | StrictFloat | StrictStr | None = Field(
        None, description="The very value, or one of a list's."
    )
    sort: Literal["asc", "desc"] | None = Field(
        None, description="Values first in this order gain most; text, numbers and dates."
    )


class FieldRule(Input):
    """Rules on one field; each that holds multiplies the score by (1 + weight)."""

    weight: float = Field(0.5, ge=0, le=100, description="0 changes nothing.")
    rules: Rules = Field(description="At least one.", examples=[{"priority": "stable"}])


class Reranker(Input):
    """A model that reads query and chunk together, for the first hits."""

    model: str | None = Field(None, min_length=1, max_length=256, description="Left out: its own.")
    top: Count = Field(20, ge=1, le=200, description="Hits it reads, of all collections together.")


class Feedback(Input):
    """Pseudo-relevance feedback: words and vectors of the first hits join the query."""

    chunks: Count = Field(3, ge=1, le=20, description="Hits that are learned from.")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(
        0.35,
        description="Least cosine of such a hit, in keyword mode its normalized score; without one"
        " nothing changes.",
    )
    terms: Count = Field(12, ge=0, le=64, description="Words that join the keyword search.")
    weight: Share = Field(0.5, description="Of what was learned, beside the query itself.")


class Temporal(Input):
    """How dates weigh where the query, timeRange or order asks for a time."""

    weight: Share | None = Field(
        None,
        description="Share of the score that dates have; 0 leaves times unread, in the query too."
        " Left out: by how much the other words tell.",
    )
    sigma_days: float = Field(
        15.0,
        gt=0,
        le=36_500,
        description="How fast closeness falls off beside the period: the standard deviation.",
    )
    order: Literal["newest", "oldest"] | None = Field(
        None,
        description="Which of equally relevant hits come first, as 'latest X' and 'oldest X' in a"
        " query do. Compared are the dates that texts name, else when they were stored.",
    )


class TimeRange(Input):
    """A period that hits should speak of; at least one end."""

    start: NonBlank | None = Field(
        None,
        alias="from",
        max_length=32,
        description="First day: YYYY-MM-DD, or an instant on it (RFC 3339). Left out: open.",
        examples=["2026-01-01"],
    )
    end: NonBlank | None = Field(
        None,
        alias="to",
        max_length=32,
        description="Last day, likewise.",
        examples=["2026-03-31"],
    )


class Decay(Input):
    """Age lowers a score, use raises it."""

    half_life_days: float = Field(
        365.0, gt=0, le=36_500, description="Days since it was indexed that leave half a score."
    )
    floor: Share = Field(0.3, description="What is left of a score at any age.")
    weight: Share = Field(1.0, description="0 changes nothing, 1 is the whole effect.")
    agent_id: NonBlank | None = Field(
        None,
        max_length=128,
        description="Agent whose use counts: what its queries were shown is recorded and counts"
        " a little more for this agent alone.",
    )


class Graph(Input):
    """Neighbours of the first hits over links and chunk order, by their own cosine."""

    hops: Count = Field(1, ge=1, le=2, description="How far to walk.")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(
        0.55, description="Least cosine of a neighbour."
    )
    kinds: list[NonBlank] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Kinds of links to follow. Left out: all, and the order of chunks.",
        examples=[["derives_from", "references"]],
    )


class Expand(Input):
    """More text around each hit."""

    mode: Literal["neighbors", "section"] = Field(
        "neighbors", description="Chunks beside it, or its whole section (same headings)."
    )
    window: Count = Field(1, ge=1, le=10, description="Chunks on each side, of neighbors.")


class ExpandQuery(Input):
    """Words of a language model beside the query's own, if the network has one."""

    method: Literal["terms", "stepBack"] = Field(
        "terms", description="Related words, or a more general question."
    )
    model: str | None = Field(None, min_length=1, max_length=256, description="Left out: its own.")
