"""Closeness in time as one signal beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, pi, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.understanding.periods import NEAR_DAYS, Period

Floats = npt.NDArray[np.float64]

LIKELY: Final = 0.5
"""How likely the best hit is what is asked for, where a question is for the newest."""


def order_gains(days: Floats, relevance: Floats) -> Floats:
    """Return what candidates gain in a question for the newest, less what they gain on average.

    The newest of those meant is the one that is meant while none of the newer ones is: with
    ``r_j`` how relevant a candidate is beside the best one, ``u_i = prod (1 - r_j / 2)`` over all
    that are newer. The gain is ``u_i`` less the mean of all ``u``, weighted by relevance: so it
    is 0 where nothing is newer than anything else.

    Args:
        days: When each was, in any unit, the newer the greater, shape (n,), n > 0. For the oldest
            their negative.
        relevance: ``r``, 0 to 1, at least one > 0, shape (n,).

    Returns:
        Shape (n,), within -1 and 1.
    """
    newest = np.argsort(-days, kind="stable")
    none_of = np.concatenate(([1.0], np.cumprod(1.0 - LIKELY * relevance[newest])))
    newer = np.searchsorted(-days[newest], -days, side="left")
    alone = none_of[newer]
    return np.asarray(alone - alone @ relevance / relevance.sum())


def proximity(periods: Sequence[Period], asked: Period, *, sigma: float = NEAR_DAYS) -> float:
    """Return how close a chunk is in time to the period asked for, 0 to 1.

    A day within it counts 1, one that is ``d`` days away ``exp(-d^2 / (2 sigma^2))``. A period of
    the chunk counts the mean of its days, so that a text about a whole year says little of its
    March; of several the closest counts.

    Args:
        periods: Those of the chunk; none gives 0.
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
    """Sum of the bell over the whole days from ``nearest`` to ``farthest``, as its integral."""
    if sigma == 0:
        return 0.0
    scale = sigma * sqrt(2)
    return sigma * sqrt(pi / 2) * (erf((farthest + 0.5) / scale) - erf((nearest - 0.5) / scale))
