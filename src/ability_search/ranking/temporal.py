"""Closeness in time, and order in time."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, pi, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.understanding.periods import NEAR_DAYS, Period

Floats = npt.NDArray[np.float64]

LIKELY: Final = 0.5
"""Probability that the best hit is relevant, in queries for the newest."""


def order_gains(days: Floats, relevance: Floats) -> Floats:
    """Return the gains of candidates in a query for the newest, relative to the mean gain.

    The newest relevant candidate is the one that is relevant while no newer one is: with ``r_j``
    the relevance of a candidate relative to the best one, ``u_i = prod (1 - r_j / 2)`` over all
    newer ones. The gain is ``u_i`` minus the mean of all ``u``, weighted by relevance: it is 0 if
    no candidate is newer than another.

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
    return np.asarray(alone - alone @ relevance / relevance.sum())


def proximity(periods: Sequence[Period], asked: Period, *, sigma: float = NEAR_DAYS) -> float:
    """Return how close a chunk is in time to the period asked for, 0 to 1.

    A day within it counts 1, a day ``d`` days away ``exp(-d^2 / (2 sigma^2))``. A period of the
    chunk counts the mean of its days, so that a text about a whole year counts little for its
    March; of several periods the closest counts.

    Args:
        periods: Periods of the chunk; none gives 0.
        asked: Either end may be open.
        sigma: Days; 0 counts only the days within.
    """
    return max((_mean(period, asked, sigma) for period in periods), default=0.0)


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
    """Return the sum of the bell over the days ``nearest`` to ``farthest``, as its integral."""
    if sigma == 0:
        return 0.0
    scale = sigma * sqrt(2)
    return sigma * sqrt(pi / 2) * (erf((farthest + 0.5) / scale) - erf((nearest - 0.5) / scale))
