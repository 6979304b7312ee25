"""Fusion of several ranked lists into one.

Both methods score in [0, 1]. The convex score preserves how good a hit is and hence means the same
in every query with the same retrievers; the reciprocal one uses only ranks.

The default is the convex combination, .7 semantic and .3 keyword. nDCG@10 with 50 candidates per
retriever (all-MiniLM-L6-v2), abstracts / short notes: semantic .395 / .662, keyword .396 / .630,
reciprocal rank (k 60) .428 / .653, convex .436 / .684; weights from .5 : .5 to .8 : .2 stay within
.429-.436 / .676-.684.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.errors import InvalidInput

Floats = npt.NDArray[np.float64]

RRF_K: Final = 60.0
SIGNAL_TERMS: Final = 2 / 3
"""Information of an additional signal, in units of the rarest possible term."""
SIGNAL_WEIGHT_LIMIT: Final = 0.5
_FIRST: Final = 10
"""Number of semantic hits that :func:`peaked_share` compares."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One retriever's result for n candidates. A retriever that failed is left out.

    Attributes:
        name: name of the retriever, for ``explain`` and errors.
        scores: normalized, in [0, 1], shape (n,); NaN if the retriever did not return the
            candidate.
        weight: >= 0; a retriever of weight 0 is ignored.
        unseen: assumed normalized score of a candidate that the retriever did not return.
        order: values that define its order, if not the scores, shape (n,).

    Raises:
        InvalidInput: if the weight is negative or not a number (``fusion.weights.<name>``).
        ValueError: if a score is outside [0, 1].
    """

    name: str
    scores: Floats
    weight: float = 1.0
    unseen: float = 0.0
    order: Floats | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight >= 0):
            raise InvalidInput(f"fusion.weights.{self.name}", "must be a number of at least 0")
        if ((self.scores < 0) | (self.scores > 1)).any():
            raise ValueError(f"retriever {self.name}: scores must be within [0, 1]")

    @property
    def ranks(self) -> Floats:
        """Rank of each candidate, from 1, ties in input order; shape (n,).

        NaN if the retriever did not return the candidate.
        """
        by = self.scores if self.order is None else self.order
        order = np.argsort(-by, kind="stable")
        ranks = np.empty(len(order))
        ranks[order] = np.arange(1.0, len(order) + 1)
        ranks[np.isnan(self.scores)] = np.nan
        return ranks


@dataclass(frozen=True, slots=True)
class Fused:
    """Fused scores of n candidates.

    Attributes:
        scores: in [0, 1], shape (n,); the sum of the shares.
        shares: contribution of each retriever of positive weight to the scores, by name, shape
            (n,).
        found: whether such a retriever returned the candidate, shape (n,).
    """

    scores: Floats
    shares: Mapping[str, Floats]
    found: npt.NDArray[np.bool_]


def normalized_cosine(cosines: npt.ArrayLike) -> Floats:
    """Map cosines to [0, 1]: negative cosines become 0, like orthogonal vectors.

    NaN, the cosine of a zero vector, becomes 0.
    """
    return np.asarray(np.minimum(np.fmax(np.asarray(cosines, dtype=np.float64), 0.0), 1.0))


def unseen_score(scores: Floats, depth: int) -> float:
    """Return the assumed score of a candidate that a retriever with ``depth`` did not return.

    If the list is full, the true score lies between 0 and the last one returned; the middle
    minimizes the greatest error. If the list is not full, the retriever has no more: 0.
    """
    seen = scores[~np.isnan(scores)]
    return float(seen.min()) / 2 if len(seen) and len(seen) >= depth else 0.0


def peaked_share(
    share: float, cosines: npt.ArrayLike, *, slope: float, usual: float = 0.25, reach: float = 0.2
) -> float:
    """Adapt the weight of the semantic retriever to how much its first hit stands out.

    ``share + slope (gap - usual)`` with ``gap = (c_1 - mean(c_1 .. c_10)) / c_1``, at most
    ``reach`` from the share and within [0, 1]. A flat list of cosines says little about which
    chunk is the right one: a predictor of query performance of the family of Shtok et al.,
    Predicting Query Performance by Query-Drift Estimation (2012).

    Args:
        share: semantic share of both weights, 0 to 1; 0 and 1 are kept.
        cosines: cosines of the candidates, in any order, shape (n,); with fewer than ten, or a
            best one that is not positive, the share is kept.
        slope: influence of the gap; 0 keeps the share.
        usual: the gap that changes nothing.
        reach: the greatest change.
    """
    found = np.asarray(cosines, dtype=np.float64)
    if slope == 0 or share in (0.0, 1.0) or len(found) < _FIRST:
        return share
    first = np.partition(found, len(found) - _FIRST)[-_FIRST:]
    best = first.max()
    if not best > 0:
        return share
    change = np.clip(slope * ((best - first.mean()) / best - usual), -reach, reach)
    return float(np.clip(share + change, 0.0, 1.0))


def signal_weight(information: float, rarest: float, *, terms: float = SIGNAL_TERMS) -> float:
    """Return the weight of a signal besides the fused score, 0 to :data:`SIGNAL_WEIGHT_LIMIT`.

    Query words and signal share the score by their information: ``terms / (terms + n)``, where
    the words carry the information of ``n`` of the rarest terms. The score is ``(1 - w) fused +
    w signal``.

    Args:
        information: Information of the query's topic, see :mod:`.bm25`.
        rarest: Inverse document frequency of a term in a single chunk, > 0.
        terms: Information of the signal, as a number of rarest terms, > 0.
    """
    return min(SIGNAL_WEIGHT_LIMIT, terms / (terms + information / rarest))


def convex(arms: Sequence[Arm]) -> Fused:
    """Fuse by the weighted mean of normalized scores.

    Convex combination with fixed normalization bounds: Bruch, Gai & Ingber, An Analysis of
    Fusion Functions for Hybrid Retrieval (2022). The weights are relative to their sum, which
    includes retrievers without hits, so that scores are comparable whatever was found. With one
    retriever, the result is its scores.

    Args:
        arms: at least one, all of the same candidates.

    Raises:
        InvalidInput: if all weights are 0 (``fusion.weights``).
    """
    counted = _counted(arms)
    total = sum(arm.weight for arm in counted)
    return _fused(
        counted,
        [
            arm.weight / total * np.where(np.isnan(arm.scores), arm.unseen, arm.scores)
            for arm in counted
        ],
    )


def reciprocal_rank(arms: Sequence[Arm], *, k: float = RRF_K) -> Fused:
    """Fuse by the weighted sum of ``1 / (k + rank)``.

    Cormack, Clarke & Buettcher, Reciprocal Rank Fusion (2009); divided by its maximum, so that
    1 is first by every retriever. A candidate that a retriever did not return gets nothing from
    it.

    Args:
        arms: at least one, all of the same candidates; ties rank in input order.
        k: rank constant, >= 0.

    Raises:
        InvalidInput: if ``k`` is negative or not a number (``fusion.k``) or all weights are 0.
    """
    if not (isfinite(k) and k >= 0):
        raise InvalidInput("fusion.k", "must be a number of at least 0")
    counted = _counted(arms)
    total = sum(arm.weight for arm in counted)
    return _fused(
        counted,
        [np.nan_to_num(arm.weight / total * (k + 1) / (k + arm.ranks)) for arm in counted],
    )


def _counted(arms: Sequence[Arm]) -> list[Arm]:
    counted = [arm for arm in arms if arm.weight > 0]
    if not counted:
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")
    return counted


def _fused(arms: Sequence[Arm], shares: Sequence[Floats]) -> Fused:
    return Fused(
        np.minimum(1.0, np.sum(shares, axis=0)),
        {arm.name: share for arm, share in zip(arms, shares, strict=True)},
        np.any([~np.isnan(arm.scores) for arm in arms], axis=0),
    )
