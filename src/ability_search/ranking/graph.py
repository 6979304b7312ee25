"""Graph expansion: strength of paths, and scores of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

SHARE = 0.2
"""Greatest share of the difference to the hit's score that a neighbour gains."""
HOP = 0.5
"""Factor on a path's strength for each further hop."""
ORDER = 0.5
"""Strength of the step between adjacent chunks of a text; that of a link is its weight."""


def strength(weights: Sequence[float]) -> float:
    """Return the strength of a path, 0 to 1.

    The product of its weights, halved for each hop after the first.

    Args:
        weights: Weights of the steps, at least one, each in [0, 1].
    """
    return float(prod(weights) * HOP ** (len(weights) - 1))


def lifted(score: float, start: float, strength: float) -> float:
    """Return the score of a neighbour, moved towards that of the hit it is reached from.

    It never exceeds that hit's score, and a higher score is unchanged. With cosines of .5 and .6
    and the strongest link the gain is .02: it decides between near ties.

    Args:
        score: Score of the neighbour, in [0, 1].
        start: Score of the hit.
        strength: Strength of the path between them, in [0, 1].
    """
    return score + SHARE * strength * max(0.0, start - score)
