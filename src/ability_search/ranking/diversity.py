"""Diversity of the first hits.

Maximal marginal relevance: Carbonell & Goldstein, The Use of MMR, Diversity-Based Reranking for
Reordering Documents and Producing Summaries (1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pick:
    """A candidate in its new place."""

    place: int
    """Previous place, from 0."""
    score: float
    similarity: float
    """Similarity to the most similar candidate picked before."""


def similarities(vectors: npt.ArrayLike) -> Floats:
    """Return the cosines between unit vectors, shape (n, n); negative ones as 0.

    Args:
        vectors: shape (n, d); a zero vector is similar to nothing.
    """
    unit = np.asarray(vectors, dtype=np.float64)
    return np.asarray(np.clip(unit @ unit.T, 0.0, 1.0))


def diversified(
    relevance: Sequence[float],
    similarity: Floats,
    ids: Sequence[str],
    *,
    trade_off: float,
    reach: Sequence[int],
) -> list[Pick]:
    """Pick candidates one by one by maximal marginal relevance.

    Each pick has the highest ``trade_off relevance + (1 - trade_off) (1 - s)``, where ``s`` is its
    similarity to the most similar one picked before, 0 for the first. This is the paper's criterion
    plus ``1 - trade_off``, which keeps it in [0, 1] and preserves the order. The value is the score
    of the pick, but never above that of the previous pick.

    Args:
        relevance: relevance of the candidates, best first, in [0, 1], shape (n,).
        similarity: similarity between them, in [0, 1], shape (n, n).
        ids: ids of the candidates; ties go to the smallest id.
        trade_off: 1 is relevance only, 0 diversity only.
        reach: number of first candidates that each pick chooses from, ascending, one per pick;
            at least ``i + 1`` for pick ``i``.

    Returns:
        The picks, by descending score, ties by id.
    """
    worth = trade_off * np.asarray(relevance, dtype=np.float64)
    nearest = np.zeros(len(worth))
    left = np.ones(len(worth), np.bool_)
    picks: list[Pick] = []
    for within in reach:
        value = np.where(left, worth + (1 - trade_off) * (1 - nearest), -1.0)[:within]
        best = float(value.max())
        place = min(np.flatnonzero(value == best).tolist(), key=ids.__getitem__)
        if picks and (-best, ids[place]) < (-picks[-1].score, ids[picks[-1].place]):
            best = max(0.0, nextafter(picks[-1].score, -1.0))
        picks.append(Pick(place, best, float(nearest[place])))
        left[place] = False
        nearest = np.maximum(nearest, similarity[place])
    return picks
