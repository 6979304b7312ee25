"""Dates in the score: chunks of the requested period join, and closeness in time counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final, NamedTuple

from ability_search.extensions.understanding.periods import (
    NEAR_DAYS,
    Period,
    buckets_of_query,
    day_of,
    from_numbers,
)
from ability_search.filters.tree import HasFacet, combine
from ability_search.search.candidates import Candidate, Candidates, blend
from ability_search.search.query import Query
from ability_search.search.stage import scorer
from ability_search.search.wants import FurtherSearch, Wants

TIME_TERMS: Final = 2 / 3
"""Information of a time, in units of the rarest possible term."""
WEIGHT_LIMIT: Final = 0.5
OUTSIDE: Final = 0.5
"""Closeness of a day next to the period; a day within it counts 1."""
DATED: Final = 30
"""Maximum number of chunks of the requested period that join the candidates."""
CREATED_SHARE: Final = 0.5
"""Weight of the indexing time for a chunk that has no date."""


def proximity(periods: Sequence[Period], asked: Period, *, sigma: float = NEAR_DAYS) -> float:
    """Return how close a chunk is in time to the period asked for, 0 to 1; the closest counts.

    A period of the chunk counts the share of its days that are within: a text about a whole year is
    little about its March. One that is ``d`` days away counts ``exp(-d^2 / (2 sigma^2)) / 2``.

    Args:
        periods: Periods of the chunk; none gives 0.
        asked: Either end may be open.
        sigma: Days, > 0.
    """
    closeness = 0.0
    for period in periods:
        first, last = period.first, period.last
        if first is None or last is None:
            continue
        low = first if asked.first is None else asked.first
        high = last if asked.last is None else asked.last
        within = min(last, high) - max(first, low) + 1
        if within > 0:
            closeness = max(closeness, within / (last - first + 1))
        else:
            closeness = max(closeness, OUTSIDE * exp(-(((1 - within) / sigma) ** 2) / 2))
    return closeness


class RequestedTime(NamedTuple):
    """A period that hits should be about."""

    period: Period
    by_option: bool
    """Whether the caller gave it, so that the indexing time replaces missing dates."""
    weight: float | None
    """Share of dates in the score; ``None`` for :func:`time_weight`."""
    sigma_days: float


def dates_wanted(time: RequestedTime, query: Query) -> Wants:
    """Return the columns with the times of a chunk, and the search of chunks of the period."""
    filter = combine(HasFacet(tuple(buckets_of_query(time.period))), query.filter)
    return Wants(
        fields=("dates", "created_at") if time.by_option else ("dates",),
        searches=(FurtherSearch("dated", filter, limit=DATED),),
        statistics=True,
    )


def time_weight(weight: float | None, candidates: Candidates) -> float:
    """Return the share of dates in the score, 0 to :data:`WEIGHT_LIMIT` unless the query says it.

    Topic and time share the score by their information, that of a time being :data:`TIME_TERMS`.
    """
    if weight is None:
        informative = candidates.request.informative
        weight = min(WEIGHT_LIMIT, TIME_TERMS / (TIME_TERMS + informative))
    return weight


def score_closeness(
    time: RequestedTime, items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Make closeness in time a share of each candidate's score."""
    weight = time_weight(time.weight, candidates)
    for item in items:
        closeness = _closeness(item, time)
        blend(item, NAME, closeness, weight, closeness=closeness, share=weight)


def periods_of(item: Candidate) -> list[Period]:
    """Return the periods that a candidate names, in order."""
    return from_numbers(item.columns.get("dates") or ())


def _closeness(item: Candidate, time: RequestedTime) -> float:
    """Return the closeness in time of a candidate, 0 to 1.

    Only for a time range does the indexing time replace missing dates.
    """
    asked, sigma = time.period, time.sigma_days
    periods = periods_of(item)
    created = item.columns.get("created_at")
    if periods or not time.by_option or created is None:
        return proximity(periods, asked, sigma=sigma)
    day = day_of(created)
    return CREATED_SHARE * proximity([Period(day, day)], asked, sigma=sigma)


NAME = "temporal"
TIME_CLOSENESS = scorer(NAME, 30, score_closeness, wants=dates_wanted)
