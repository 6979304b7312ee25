"""Reranking: rules, models and a second search that change the order of what was found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ability_search.search.options import FieldName, QueryInput
from ability_search.wire import Count, Input, NonBlank, Share


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


class RerankingOptions(QueryInput):
    """The options of reranking of search-query."""

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
    diversity: Share | None = Field(
        None,
        description="Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity only.",
        examples=[0.7],
    )
