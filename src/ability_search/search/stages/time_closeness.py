"""Dates in the score: chunks of the requested period join, and closeness in time counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, pi, sqrt
from typing import Final

from ability_search.filters.tree import Filter, HasFacet, combine
from ability_search.search.candidates import Candidate, Candidates, blend
from ability_search.search.fusion import signal_weight
from ability_search.search.plan import Plan
from ability_search.search.query import Query
from ability_search.search.stage import scorer
from ability_search.understanding.periods import (
    NEAR_DAYS,
    Period,
    buckets_of_query,
    day_of,
    from_numbers,
)

SHORT_DAYS: Final = 40
"""A shorter period counts as a date: up to a month, or some days around one."""
OUTSIDE: Final = 0.5
"""Closeness of a day next to the period; a day within it counts 1."""
CREATED_SHARE: Final = 0.5
"""Weight of the indexing time for a chunk that has no date."""


@dataclass(frozen=True, slots=True)
class TimeSignal:
    """The dates that count in a query.

    Attributes:
        weight: Share of the score, 0 to 1.
        period: The days asked for.
        sigma: Standard deviation, in days, of closeness to the period; 0 counts only the period.
    """

    weight: float
    period: Period
    sigma: float


def proximity(periods: Sequence[Period], asked: Period, *, sigma: float = NEAR_DAYS) -> float:
    """Return how close a chunk is in time to the period asked for, 0 to 1.

    A day within it counts 1, a day ``d`` days away ``exp(-d^2 / (2 sigma^2)) / 2``. A period of the
    chunk counts the mean of its days, so that a text about a whole year counts little for its
    March; of several periods the closest counts.

    Args:
        periods: Periods of the chunk; none gives 0.
        asked: Either end may be open.
        sigma: Days; 0 counts only the days within.
    """
    return max((_mean(period, asked, sigma) for period in periods), default=0.0)


def dated_filter(query: Query) -> Filter | None:
    """Return the filter on chunks of the requested period; ``None`` if there is none."""
    if query.intent.period is None:
        return None
    return combine(HasFacet(tuple(buckets_of_query(query.intent.period))), query.filter)


def time_signal(plan: Plan, query: Query) -> TimeSignal | None:
    """Return how dates count in a query; ``None`` if they do not."""
    intent = query.intent
    period = intent.period
    if period is None:
        return None
    weight = query.temporal.weight
    if weight is None:
        weight = signal_weight(plan.informative, 1.0)
    return TimeSignal(weight, period, query.temporal.sigma_days)


def score_closeness(
    _columns: Sequence[str], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Make closeness in time a share of each candidate's score."""
    signal = time_signal(candidates.plan, candidates.query)
    if signal is None:
        return
    ranged = candidates.query.period is not None
    for item in items:
        closeness = _closeness(item, signal, ranged=ranged)
        blend(item, NAME, closeness, signal.weight, closeness=closeness, share=signal.weight)


def periods_of(item: Candidate) -> list[Period]:
    """Return the periods that a candidate names, in order."""
    return from_numbers(item.columns.get("dates") or ())


def is_date(period: Period) -> bool:
    """Return whether a period is short enough to date something."""
    first, last = period.first, period.last
    return first is not None and last is not None and last - first < SHORT_DAYS


def _columns(query: Query) -> Sequence[str] | None:
    """Return the columns with the times of a chunk; ``None`` if they do not count."""
    if not query.dates_count:
        return None
    return ("dates",) if query.period is None else ("dates", "created_at")


def _closeness(item: Candidate, signal: TimeSignal, *, ranged: bool) -> float:
    """Return the closeness in time of a candidate, 0 to 1.

    Only for a time range does the indexing time replace missing dates.
    """
    periods = periods_of(item)
    created = item.columns.get("created_at")
    if periods or not ranged or created is None:
        return proximity(periods, signal.period, sigma=signal.sigma)
    day = day_of(created)
    return CREATED_SHARE * proximity([Period(day, day)], signal.period, sigma=signal.sigma)


def _mean(period: Period, asked: Period, sigma: float) -> float:
    first, last = period.first, period.last
    if first is None or last is None:
        return 0.0
    low = first if asked.first is None else asked.first
    high = last if asked.last is None else asked.last
    total = max(0.0, min(last, high) - max(first, low) + 1.0)
    if first < low:
        total += _bell(max(1, low - last), low - first, sigma)
    if last > high:
        total += _bell(max(1, first - high), last - high, sigma)
    return min(1.0, total / (last - first + 1))


def _bell(nearest: int, farthest: int, sigma: float) -> float:
    """Return the sum of half the bell over the days ``nearest`` to ``farthest``, its integral."""
    if sigma == 0:
        return 0.0
    scale = sigma * sqrt(2)
    return (
        OUTSIDE
        * sigma
        * sqrt(pi / 2)
        * (erf((farthest + 0.5) / scale) - erf((nearest - 0.5) / scale))
    )


NAME = "temporal"
TIME_CLOSENESS = scorer(NAME, _columns, score_closeness, lambda columns: columns)
