"""Order in time for queries like ``latest deployment``: newest or oldest first. Pure.

Relevant candidates are ordered in time. Candidates that name a date are compared by it, all others
by when they were stored, and each of the two groups counts by its share of the relevance: dates
count little if few candidates have any, and nothing changes if all are of one day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ability_search.querying.adjusting import Adjustment, Context, adjust
from ability_search.querying.model import Candidate, Query
from ability_search.querying.temporal import is_date, periods_of
from ability_search.ranking.feedback import TAU
from ability_search.ranking.fusion import signal_weight
from ability_search.ranking.temporal import Floats, order_gains
from ability_search.understanding.periods import day_of
from ability_search.understanding.recency import Order

NAME: Final = "order"


def wanted(query: Query) -> bool:
    """Return whether the query asks for the newest or the oldest."""
    return _order(query) is not None


def put_in_order(candidates: Sequence[Candidate], context: Context) -> None:
    """Raise the newest of the relevant candidates, or the oldest, and lower the others."""
    order = _order(context.query)
    if order is None or not candidates:
        return
    weight = context.query.options.temporal.weight
    if weight is None:
        weight = signal_weight(context.plan.informative, 1.0)
    for item, gain in zip(candidates, _gains(candidates, order, context).tolist(), strict=True):
        score = min(1.0, max(0.0, item.score + weight * gain))
        adjust(item, NAME, score, gain=gain, share=weight)


def _columns(query: Query) -> Sequence[str]:
    return ("dates", "createdAt") if wanted(query) else ()


ORDER = Adjustment(NAME, _columns, put_in_order)


def _order(query: Query) -> Order | None:
    return query.intent.order if query.intent is not None else None


def _gains(candidates: Sequence[Candidate], order: Order, context: Context) -> Floats:
    scores = np.array([item.score for item in candidates])
    relevance = np.exp((scores - scores.max()) / TAU)
    today = day_of(context.now)
    dates = [_date(item, today) for item in candidates]
    stored = [
        min(today, day_of(item.columns.get("createdAt") or context.now)) for item in candidates
    ]
    dated = np.array([date is not None for date in dates])
    days = np.where(dated, np.array(dates, dtype=np.float64), stored)
    gains = np.zeros(len(candidates))
    for group in (dated, ~dated):
        if group.any():
            share = relevance[group].sum() / relevance.sum()
            at = days[group] if order == "newest" else -days[group]
            gains[group] = share * order_gains(at, relevance[group])
    return gains


def _date(item: Candidate, today: int) -> float | None:
    """Return the day of a candidate: the first date it names that is not in the future.

    For a period, the middle of its elapsed part.
    """
    begun = [
        (period.first, min(period.last, today), is_date(period))
        for period in periods_of(item)
        if period.first is not None and period.last is not None and period.first <= today
    ]
    chosen = next((each for each in begun if each[2]), begun[0] if begun else None)
    return None if chosen is None else (chosen[0] + chosen[1]) / 2
