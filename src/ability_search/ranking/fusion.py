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
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.errors import InvalidInput

Floats = npt.NDArray[np.float64]

RRF_K: Final = 60.0


@dataclass(frozen=True, slots=True)
class Arm:
    """One ranked list. An arm that failed is left out; one that found nothing is given empty.

    Attributes:
        name: of the signal, for ``explain`` and for errors.
        ids: chunk ids, best first, unique.
        scores: normalized, in [0, 1], aligned with ``ids``, shape (n,).
        weight: >= 0; an arm of weight 0 is as good as absent, its candidates too.
        unseen: normalized score supposed of a candidate that the arm did not return.

    Raises:
        InvalidInput: if the weight is negative or not a number (``fusion.weights.<name>``).
        ValueError: if ids and scores do not match, or a score is outside [0, 1].
    """

    name: str
    ids: Sequence[str]
    scores: Floats
    weight: float = 1.0
    unseen: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight >= 0):
            raise InvalidInput(f"fusion.weights.{self.name}", "must be a number of at least 0")
        if self.scores.shape != (len(self.ids),) or len(set(self.ids)) != len(self.ids):
            raise ValueError(f"arm {self.name}: ids must be unique and aligned with the scores")
        if not ((self.scores >= 0) & (self.scores <= 1)).all():
            raise ValueError(f"arm {self.name}: scores must be within [0, 1]")


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one arm gave to a fused hit.

    Attributes:
        rank: place in the arm, from 1; ``None`` if the arm did not return it.
        normalized: the arm's normalized score, ``unseen`` if it did not return the hit.
        share: the part of the fused score that came from this arm.
    """

    rank: int | None
    normalized: float
    share: float


@dataclass(frozen=True, slots=True)
class FusedHit:
    """A candidate with its fused score, which is the sum of the shares of its arms."""

    id: str
    score: float
    contributions: Mapping[str, Contribution]


def normalized_cosine(cosines: npt.ArrayLike) -> Floats:
    """Map cosines to [0, 1]: what points away (< 0) is as unrelated as what is orthogonal.

    Not a number, the cosine of a zero vector, gives 0.
    """
    return np.clip(np.nan_to_num(np.asarray(cosines, dtype=np.float64)), 0.0, 1.0)


def unseen_score(scores: Floats, depth: int) -> float:
    """Return what to suppose of a candidate that an arm asked for ``depth`` did not return.

    If the list is full, its true score lies between 0 and the last one returned: the middle
    is the guess with the least greatest error. If it is not full, the arm has no more: 0.
    """
    return float(scores.min()) / 2 if len(scores) and len(scores) >= depth else 0.0


def convex(arms: Sequence[Arm]) -> list[FusedHit]:
    """Fuse by the weighted mean of normalized scores, best first, equal scores by id.

    Convex combination with fixed normalization bounds: Bruch, Gai & Ingber, An Analysis of
    Fusion Functions for Hybrid Retrieval (2022). The weights are taken relative to their sum,
    arms without hits included, so that the score means the same whatever the arms found. With
    one arm it is that arm's list and scores. No arms, or only empty ones, give ``[]``.

    Raises:
        InvalidInput: if all weights are 0 (``fusion.weights``).
    """
    counted = _counted(arms)
    total = sum(arm.weight for arm in counted)
    return _fused(
        [
            _Shares(arm, arm.weight / total * arm.scores, arm.weight / total * arm.unseen)
            for arm in counted
        ]
    )


def reciprocal_rank(arms: Sequence[Arm], *, k: float = RRF_K) -> list[FusedHit]:
    """Fuse by the weighted sum of ``1 / (k + rank)``, best first, equal scores by id.

    Cormack, Clarke & Buettcher, Reciprocal Rank Fusion (2009); divided by its maximum, so that
    1 is first in every arm. A candidate an arm did not return gets nothing from it. No arms,
    or only empty ones, give ``[]``.

    Raises:
        InvalidInput: if ``k`` is negative or not a number (``fusion.k``) or all weights are 0.
    """
    if not (isfinite(k) and k >= 0):
        raise InvalidInput("fusion.k", "must be a number of at least 0")
    counted = _counted(arms)
    best = sum(arm.weight / (k + 1) for arm in counted)
    return _fused(
        [
            _Shares(arm, arm.weight / best / (k + np.arange(1.0, len(arm.ids) + 1)), 0.0)
            for arm in counted
        ]
    )


@dataclass(frozen=True, slots=True)
class _Shares:
    """What an arm adds to the score of each of its ids, and of the others."""

    arm: Arm
    seen: Floats
    unseen: float


def _counted(arms: Sequence[Arm]) -> list[Arm]:
    counted = [arm for arm in arms if arm.weight > 0]
    if arms and not counted:
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")
    return counted


def _fused(shares: Sequence[_Shares]) -> list[FusedHit]:
    found: dict[str, dict[str, Contribution]] = {}
    for each in shares:
        for rank, (id_, normalized, share) in enumerate(
            zip(each.arm.ids, each.arm.scores.tolist(), each.seen.tolist(), strict=True), start=1
        ):
            found.setdefault(id_, {})[each.arm.name] = Contribution(rank, normalized, share)
    hits = []
    for id_, seen in found.items():
        contributions = {
            each.arm.name: seen.get(each.arm.name)
            or Contribution(None, each.arm.unseen, each.unseen)
            for each in shares
        }
        score = min(1.0, sum(part.share for part in contributions.values()))
        hits.append(FusedHit(id_, score, MappingProxyType(contributions)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))
