"""Several ranked lists -> one.

Both methods score in [0, 1]. The convex score keeps how good a hit is, hence means the same in
every query with the same arms; the reciprocal one only knows places.

The default is the convex combination, .7 semantic and .3 keyword. nDCG@10 with 50 candidates
an arm (all-MiniLM-L6-v2), abstracts / short notes: semantic .395 / .662, keyword .396 / .630,
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
"""How much a further signal weighs, in words that hardly any chunk has."""
SIGNAL_WEIGHT_LIMIT: Final = 0.5
_FIRST: Final = 10
"""Hits of the semantic arm that tell how peaked it is."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What one arm says of n candidates. An arm that failed is left out.

    Attributes:
        name: of the signal, for ``explain`` and for errors.
        scores: normalized, in [0, 1], shape (n,); not a number where the arm did not return the
            candidate.
        weight: >= 0; an arm of weight 0 is as good as absent.
        unseen: normalized score supposed of a candidate that the arm did not return.
        order: what the arm is ordered by, where that is not the scores, shape (n,).

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
            raise ValueError(f"arm {self.name}: scores must be within [0, 1]")

    @property
    def ranks(self) -> Floats:
        """Place of each candidate in the arm, from 1, equal scores in their order; shape (n,).

        Not a number where the arm did not return the candidate.
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
        shares: by the name of each arm that counts, what it gave to each score, shape (n,).
        found: whether an arm that counts returned the candidate, shape (n,).
    """

    scores: Floats
    shares: Mapping[str, Floats]
    found: npt.NDArray[np.bool_]


def normalized_cosine(cosines: npt.ArrayLike) -> Floats:
    """Map cosines to [0, 1]: what points away (< 0) is as unrelated as what is orthogonal.

    Not a number, the cosine of a zero vector, gives 0.
    """
    return np.asarray(np.minimum(np.fmax(np.asarray(cosines, dtype=np.float64), 0.0), 1.0))


def unseen_score(scores: Floats, depth: int) -> float:
    """Return what to suppose of a candidate that an arm asked for ``depth`` did not return.

    If the list is full, its true score lies between 0 and the last one returned: the middle
    is the guess with the least greatest error. If it is not full, the arm has no more: 0.
    """
    seen = scores[~np.isnan(scores)]
    return float(seen.min()) / 2 if len(seen) and len(seen) >= depth else 0.0


def peaked_share(
    share: float, cosines: npt.ArrayLike, *, slope: float, usual: float = 0.25, reach: float = 0.2
) -> float:
    """Weigh the semantic arm by how much its first hit stands out.

    ``share + slope (gap - usual)`` with ``gap = (c_1 - mean(c_1 .. c_10)) / c_1``, at most
    ``reach`` from the share and within [0, 1]. A flat list of cosines says little of which chunk
    is the right one: a predictor of query performance of the family of Shtok et al., Predicting
    Query Performance by Query-Drift Estimation (2012).

    Args:
        share: weight of the semantic arm of both, 0 to 1; 0 and 1 stay as they are.
        cosines: of the candidates, in any order, shape (n,); fewer than ten, or a best one that
            is not positive, leave the share as it is.
        slope: how much the gap counts; 0 leaves the share as it is.
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
    """Return the weight of a signal beside what the arms say, 0 to :data:`SIGNAL_WEIGHT_LIMIT`.

    The words of a query and the signal share by what they tell: ``terms / (terms + n)``, where
    the words carry the information of ``n`` of the rarest ones. The score is ``(1 - w) fused +
    w signal``.

    Args:
        information: Of the query's topic, see :mod:`.bm25`.
        rarest: Inverse document frequency of a term in a single chunk, > 0.
        terms: Of how many rarest terms the signal has the information, > 0.
    """
    return min(SIGNAL_WEIGHT_LIMIT, terms / (terms + information / rarest))


def convex(arms: Sequence[Arm]) -> Fused:
    """Fuse by the weighted mean of normalized scores.

    Convex combination with fixed normalization bounds: Bruch, Gai & Ingber, An Analysis of
    Fusion Functions for Hybrid Retrieval (2022). The weights are taken relative to their sum,
    arms without hits included, so that the score means the same whatever the arms found. With
    one arm it is that arm's scores.

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
    1 is first in every arm. A candidate an arm did not return gets nothing from it.

    Args:
        arms: at least one, all of the same candidates; equal scores rank in their order.
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
