"""Query understanding and dates, without a model: exclusions, periods, intent. Pure, English."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ability_search.search.options import QueryInput
from ability_search.wire import Input, NonBlank, Share

Order = Literal["newest", "oldest"]


class Temporal(Input):
    """Weight of dates if the query, timeRange or order asks for a time."""

    weight: Share | None = Field(
        None,
        description="Share of dates in the score; 0 ignores times, in the query too. Default:"
        " depends on how informative the other words are.",
    )
    sigma_days: float = Field(
        15.0, gt=0, le=36_500, description="Standard deviation of closeness to the period, in days."
    )
    order: Order | None = Field(
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


class ExpandQuery(Input):
    """Query expansion by a language model, if the network has one."""

    method: Literal["terms", "stepBack"] = Field(
        "terms", description="Related words, or a more general question."
    )
    model: str | None = Field(
        None, min_length=1, max_length=256, description="Default: the configured model."
    )
    below: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Expand only queries whose relevance is below. Default: every query; auto is"
        " 0.4.",
    )


class UnderstandingOptions(QueryInput):
    """The options of search-query about exclusions, times and query expansion."""

    understand: bool = Field(
        True,
        description="Recognise times (last March, before 2024, latest) and exclusions"
        " (besides X) in the query; false takes it literally.",
    )
    temporal: Temporal | None = Field(
        None,
        description="Weight of dates if the query or timeRange names a time; order in time.",
        examples=[{"weight": 0.5, "sigmaDays": 15}, {"order": "newest"}],
    )
    time_range: TimeRange | None = Field(
        None,
        description="Prefer chunks about this period; overrides times in the query. Chunks without"
        " a date count half, by when they were indexed.",
        examples=[{"from": "2026-01-01", "to": "2026-03-31"}],
    )
    exclude: list[Annotated[NonBlank, Field(max_length=1024)]] = Field(
        default_factory=list,
        max_length=16,
        description="Phrases that hits should not be about, in addition to exclusions in the query;"
        " such hits are demoted, not removed (use excludeSources for that).",
        examples=[["pagination"]],
    )
    expand_query: ExpandQuery | Literal["auto"] | bool = Field(
        False,
        description="Query expansion: let a language model add words to the query; auto: to vague"
        " queries only.",
        examples=[True, "auto", {"method": "stepBack"}],
    )
