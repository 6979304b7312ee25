"""Variety among the first hits.

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
    """Where it was before, from 0."""
    score: float
    similarity: float
    """To the most similar one picked before it."""


def similarities(vectors: npt.ArrayLike) -> Floats:
    """Return the cosines between unit vectors, shape (n, n), those below 0 as 0.

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
    """Pick candidates one by one, each time the one that is both relevant and new.

    The one with the highest ``trade_off relevance + (1 - trade_off) (1 - s)``, where ``s`` is its
    similarity to the most similar one picked before, 0 for the first. That is the paper's
    criterion raised by ``1 - trade_off``, which keeps it in [0, 1] and in the same order. It is
    the score of the pick, but never above that of the pick before.

    Args:
        relevance: of the candidates, best first, in [0, 1], shape (n,).
        similarity: between them, in [0, 1], shape (n, n).
        ids: of the candidates; of equally good ones the first by its id is picked.
        trade_off: 1 is relevance alone, 0 variety alone.
        reach: among how many of the first candidates each pick chooses, ascending, for as many
            picks as are wanted; pick ``i`` among at least ``i + 1``.

    Returns:
        The picks, in falling order of their scores, equal ones in the order of their ids.
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
