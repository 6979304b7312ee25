"""Dates in the score: chunks of the requested period join, and closeness in time counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final

from ability_search.extensions.understanding.periods import (
    NEAR_DAYS,
    Period,
    buckets_of_query,
    day_of,
    from_numbers,
)
from ability_search.filters.tree import Filter, HasFacet, combine
from ability_search.search.candidates import Candidate, Candidates, blend
from ability_search.search.query import Query
from ability_search.search.stage import scorer

TIME_TERMS: Final = 2 / 3
"""Information of a time, in units of the rarest possible term."""
WEIGHT_LIMIT: Final = 0.5
OUTSIDE: Final = 0.5
"""Closeness of a day next to the period; a day within it counts 1."""
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


def dated_filter(query: Query) -> Filter | None:
    """Return the filter on chunks of the requested period; ``None`` if there is none."""
    if query.intent.period is None:
        return None
    return combine(HasFacet(tuple(buckets_of_query(query.intent.period))), query.filter)


def time_weight(candidates: Candidates) -> float:
    """Return the share of dates in the score, 0 to :data:`WEIGHT_LIMIT` unless the query says it.

    Topic and time share the score by their information, that of a time being :data:`TIME_TERMS`.
    """
    weight = candidates.query.temporal.weight
    if weight is None:
        weight = min(WEIGHT_LIMIT, TIME_TERMS / (TIME_TERMS + candidates.plan.informative))
    return weight


def score_closeness(
    _columns: Sequence[str], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Make closeness in time a share of each candidate's score."""
    weight = time_weight(candidates)
    for item in items:
        closeness = _closeness(item, candidates.query)
        blend(item, NAME, closeness, weight, closeness=closeness, share=weight)


def periods_of(item: Candidate) -> list[Period]:
    """Return the periods that a candidate names, in order."""
    return from_numbers(item.columns.get("dates") or ())


def _columns(query: Query) -> Sequence[str] | None:
    """Return the columns with the times of a chunk; ``None`` if they do not count."""
    if query.intent.period is None:
        return None
    return ("dates",) if query.period is None else ("dates", "created_at")


def _closeness(item: Candidate, query: Query) -> float:
    """Return the closeness in time of a candidate, 0 to 1.

    Only for a time range does the indexing time replace missing dates.
    """
    asked, sigma = query.intent.period, query.temporal.sigma_days
    assert asked is not None
    periods = periods_of(item)
    created = item.columns.get("created_at")
    if periods or query.period is None or created is None:
        return proximity(periods, asked, sigma=sigma)
    day = day_of(created)
    return CREATED_SHARE * proximity([Period(day, day)], asked, sigma=sigma)


NAME = "temporal"
TIME_CLOSENESS = scorer(NAME, _columns, score_closeness, lambda columns: columns)
