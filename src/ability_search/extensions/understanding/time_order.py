"""Order in time for queries like ``latest deployment``: newest or oldest first. Pure.

Relevant candidates are ordered in time. Candidates that name a date are compared by it, all others
by when they were stored, and each of the two groups counts by its share of the relevance: dates
count little if few candidates have any, and nothing changes if all are of one day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ability_search.documents import Floats
from ability_search.extensions.understanding.intent import Order
from ability_search.extensions.understanding.periods import day_of
from ability_search.extensions.understanding.time_closeness import periods_of, time_weight
from ability_search.search.candidates import Candidate, Candidates, adjust
from ability_search.search.fusion import TAU
from ability_search.search.stage import scorer
from ability_search.search.wants import Wants

LIKELY: Final = 0.5
"""Probability that the best hit is relevant, in queries for the newest."""


class RequestedOrder(NamedTuple):
    """Whether the newest or the oldest come first."""

    order: Order
    weight: float | None
    """Share of dates in the score; ``None`` for :func:`.time_weight`."""


def order_gains(days: Floats, relevance: Floats) -> Floats:
    """Return the gains of candidates in a query for the newest, relative to the mean gain.

    The newest relevant candidate is the one that is relevant while no newer one is: with ``r_j``
    the relevance of a candidate relative to the best one, ``u_i = prod (1 - r_j / 2)`` over all
    newer ones. The gain is ``r_i (u_i - m)`` with ``m`` the mean of all ``u``, weighted by
    relevance: it is 0 if no candidate is newer than another, and for candidates that are new but
    not relevant.

    Args:
        days: Time of each, in any unit, greater is newer, shape (n,), n > 0. Negated for the
            oldest.
        relevance: ``r``, 0 to 1, at least one > 0, shape (n,).

    Returns:
        Shape (n,), between -1 and 1.
    """
    newest = np.argsort(-days, kind="stable")
    none_of = np.concatenate(([1.0], np.cumprod(1.0 - LIKELY * relevance[newest])))
    newer = np.searchsorted(-days[newest], -days, side="left")
    alone = none_of[newer]
    return np.asarray(relevance * (alone - alone @ relevance / relevance.sum()))


def score_order(time: RequestedOrder, items: Sequence[Candidate], candidates: Candidates) -> None:
    """Raise the newest of the relevant candidates, or the oldest, and lower the others."""
    weight = time_weight(time.weight, candidates)
    gains = _gains(items, time.order, candidates.now).tolist()
    for item, gain in zip(items, gains, strict=True):
        score = min(1.0, max(0.0, item.score + weight * gain))
        adjust(item, NAME, score, gain=gain, share=weight)


def _gains(items: Sequence[Candidate], order: str, now: int) -> Floats:
    scores = np.array([item.score for item in items])
    relevance = np.exp((scores - scores.max()) / TAU)
    today = day_of(now)
    dates = [_date(item, today) for item in items]
    stored = [min(today, day_of(item.columns.get("created_at") or now)) for item in items]
    dated = np.array([date is not None for date in dates])
    days = np.where(dated, np.array(dates, dtype=np.float64), stored)
    gains = np.zeros(len(items))
    for group in (dated, ~dated):
        if group.any():
            share = relevance[group].sum() / relevance.sum()
            at = days[group] if order == "newest" else -days[group]
            gains[group] = share * order_gains(at, relevance[group])
    return gains


def _date(item: Candidate, today: int) -> float | None:
    """Return the middle of the elapsed part of the first period that a candidate names, if any.

    Periods that have not begun do not count.
    """
    for period in periods_of(item):
        if period.first is not None and period.last is not None and period.first <= today:
            return (period.first + min(period.last, today)) / 2
    return None


NAME = "order"
TIME_ORDER = scorer(
    NAME,
    40,
    score_order,
    wants=lambda _time, _query: Wants(fields=("dates", "created_at"), statistics=True),
)
