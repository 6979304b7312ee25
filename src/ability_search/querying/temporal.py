"""Dates in the score: chunks of the requested period join, and closeness in time counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ability_search.querying.adjusting import Adjustment, Context, TimeSignal, blend
from ability_search.querying.candidates import Plan, Search
from ability_search.querying.model import Candidate, Query
from ability_search.ranking.fusion import SIGNAL_TERMS, signal_weight
from ability_search.ranking.temporal import proximity
from ability_search.store.arcadedb import Predicate
from ability_search.text.bm25 import QueryTerms
from ability_search.understanding.periods import Period, buckets_of_query, day_of, from_numbers

NAME = "temporal"
DATED: Final = 30
"""Maximum number of chunks of the requested period that join the candidates."""
DATE_TERMS: Final = 0.3
"""Value of :data:`SIGNAL_TERMS` for queries that any date may answer."""
SHORT_DAYS: Final = 40
"""A shorter period counts as a date: up to a month, or some days around one."""
CREATED_SHARE: Final = 0.5
"""Weight of the indexing time for a chunk that has no date."""


def wanted(query: Query) -> bool:
    """Return whether dates count in the query."""
    intent = query.intent
    return intent is not None and bool(intent.period or intent.event or intent.asks_for_date)


def dated_search(query: Query, by: Sequence[float] | QueryTerms, most: int) -> Search | None:
    """Return the search for chunks of the requested period; ``None`` if there is none.

    Its candidates belong to the first page, for which a retriever returns ``most`` candidates.
    """
    if query.intent is None or query.intent.period is None:
        return None
    text, params = "facets CONTAINSANY :buckets", {}
    if query.predicate is not None:
        text, params = f"{text} AND ({query.predicate.text})", dict(query.predicate.params)
    params["buckets"] = buckets_of_query(query.intent.period)
    return Search("dated", by, min(DATED, most), Predicate(text, params))


def time_signal(plan: Plan, query: Query) -> TimeSignal | None:
    """Return how dates count in a query; ``None`` if they do not."""
    intent = query.intent
    if intent is None:
        return None
    period = intent.period
    if period is None and not intent.asks_for_date:
        return None
    weight = query.options.temporal.weight
    if weight is None:
        terms = DATE_TERMS if period is None else SIGNAL_TERMS
        weight = signal_weight(plan.informative, 1.0, terms=terms)
    # The answer lies on one side of an event; days close to the period may be on the other.
    sigma = 0.0 if query.event is not None else query.options.temporal.sigma_days
    return TimeSignal(weight, period, sigma)


def count_dates(candidates: Sequence[Candidate], context: Context) -> None:
    """Make closeness in time a share of each candidate's score."""
    signal = context.time
    if signal is None:
        return
    for item in candidates:
        closeness = _closeness(item, signal, context.query)
        blend(item, NAME, closeness, signal.weight, closeness=closeness, share=signal.weight)


def _columns(query: Query) -> Sequence[str]:
    if not wanted(query):
        return ()
    return ("dates",) if query.options.period is None else ("dates", "createdAt")


TEMPORAL = Adjustment(NAME, _columns, count_dates)


def _closeness(item: Candidate, signal: TimeSignal, query: Query) -> float:
    """Return the closeness in time of a candidate, 0 to 1."""
    periods = periods_of(item)
    if signal.period is None:
        return float(any(map(is_date, periods)))
    created = item.columns.get("createdAt")
    if periods or query.options.period is None or created is None:
        return proximity(periods, signal.period, sigma=signal.sigma)
    day = day_of(created)
    return CREATED_SHARE * proximity([Period(day, day)], signal.period, sigma=signal.sigma)


def periods_of(item: Candidate) -> list[Period]:
    """Return the periods that a candidate names, in order."""
    return from_numbers(item.columns.get("dates") or ())


def is_date(period: Period) -> bool:
    """Return whether a period is short enough to date something."""
    first, last = period.first, period.last
    return first is not None and last is not None and last - first < SHORT_DAYS
