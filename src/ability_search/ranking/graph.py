"""What a hit is worth to its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

SHARE = 0.2
"""Part of its distance to the hit that a neighbour is lifted by, at most."""
HOP = 0.5
"""What is left of a path's strength with each further hop."""
ORDER = 0.5
"""Strength of the step from a chunk to the next one of its text; that of a link is its weight."""


def strength(weights: Sequence[float]) -> float:
    """How strong a path is, 0 to 1: the product of its weights, halved for each hop but the first.

    Args:
        weights: Of the steps, at least one, each in [0, 1].
    """
    return float(prod(weights) * HOP ** (len(weights) - 1))


def lifted(score: float, start: float, strength: float) -> float:
    """The score of a neighbour, moved towards that of the hit it is reached from.

    It never passes that hit, and one that is above it already stays where it is. With cosines of
    .5 and .6 and the strongest link the gain is .02: it decides between near equals.

    Args:
        score: Its own, in [0, 1].
        start: That of the hit.
        strength: Of the path between them, in [0, 1].
    """
    return score + SHARE * strength * max(0.0, start - score)
