"""Decay by age, and boost by use."""

from __future__ import annotations

from typing import Final

USE_STEP: Final = 0.02
USE_LIMIT: Final = 1.3
"""Reached at fifteen uses, so that often shown chunks do not crowd out all others."""


def recency(age_days: float, *, half_life: float, floor: float) -> float:
    """Return the factor of a score for age: ``max(floor, 2^(-age / half_life))``, 0 to 1.

    Args:
        age_days: negative ages, in the future, count as 0.
        half_life: days, > 0.
        floor: 0 to 1.
    """
    return float(max(floor, 2 ** (-max(0.0, age_days) / half_life)))


def familiarity(uses: int, *, step: float = USE_STEP, limit: float = USE_LIMIT) -> float:
    """Return the boost by use as a fraction of the greatest boost.

    ``min(limit, 1 + step uses) / limit``: 1 / 1.3 without a use, 1 from 15 on.

    Args:
        uses: number of times the chunk was shown before, >= 0.
        step: boost per use.
        limit: greatest boost, > 0.
    """
    return min(limit, 1 + step * uses) / limit
