"""Age and use: what is old counts less, what was shown before a little more."""

from __future__ import annotations

from typing import Final

USE_STEP: Final = 0.02
USE_LIMIT: Final = 1.3
"""Reached at fifteen uses, so that what is shown often does not keep everything else out."""


def recency(age_days: float, *, half_life: float, floor: float) -> float:
    """Return what age leaves of a score: ``max(floor, 2^(-age / half_life))``, 0 to 1.

    Args:
        age_days: below 0, in the future, it counts as 0.
        half_life: days, > 0.
        floor: 0 to 1.
    """
    return float(max(floor, 2 ** (-max(0.0, age_days) / half_life)))


def familiarity(uses: int, *, step: float = USE_STEP, limit: float = USE_LIMIT) -> float:
    """Return the part of the greatest boost by use that is reached.

    ``min(limit, 1 + step uses) / limit``: 1 / 1.3 without a use, 1 from 15 on.

    Args:
        uses: how often it was shown before, >= 0.
        step: boost by each.
        limit: greatest boost, > 0.
    """
    return min(limit, 1 + step * uses) / limit
