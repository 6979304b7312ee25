"""The stages between candidates and hits, in the order they run. Pure.

1. :func:`fused`: one score for each candidate, from its scores in the arms; best first, equal
   scores by chunkId.
2. :func:`above`: the floor of ``minScore``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ability_search.configuration.schema import Ranking
from ability_search.querying.model import Candidate, FusionChoice, Mode
from ability_search.ranking.bm25 import QueryTerms
from ability_search.ranking.fusion import (
    Arm,
    FusedHit,
    convex,
    normalized_cosine,
    reciprocal_rank,
    unseen_score,
)


def fused(
    candidates: Sequence[Candidate],
    *,
    terms: QueryTerms | None,
    semantic: bool,
    depth: int,
    choice: FusionChoice | None,
    ranking: Ranking,
) -> list[Candidate]:
    """Score candidates in [0, 1] and order them.

    Args:
        candidates: Each chunk once.
        terms: The query's terms; ``None`` if the keyword arm was not searched.
        semantic: Whether the semantic arm was searched.
        depth: Candidates that each arm was asked for.
        choice: The caller's fusion; ``None`` for the default.
        ranking: The defaults.
    """
    arms = []
    if semantic:
        arms.append(_semantic_arm(candidates, _weight(choice, "semantic", ranking)))
    if terms is not None:
        arms.append(_keyword_arm(candidates, terms, depth, _weight(choice, "keyword", ranking)))
    if len(arms) == 1:
        arms = [replace(arms[0], weight=1.0)]
    method = choice.method if choice else ranking.fusion
    if method == "rrf":
        k = choice.k if choice and choice.k is not None else ranking.fusion_k
        hits = reciprocal_rank(arms, k=k)
    else:
        hits = convex(arms)
    by_id = {candidate.chunk_id: candidate for candidate in candidates}
    return [_scored(by_id[hit.id], hit, method) for hit in hits]


def above(candidates: Sequence[Candidate], floor: float | None, *, mode: Mode) -> list[Candidate]:
    """Leave out what is below ``minScore``: by its cosine, in keyword mode by its score."""
    if floor is None:
        return list(candidates)
    if mode == "keyword":
        return [item for item in candidates if item.score >= floor]
    return [item for item in candidates if item.cosine is not None and item.cosine >= floor]


def _semantic_arm(candidates: Sequence[Candidate], weight: float) -> Arm:
    found = sorted(
        (item for item in candidates if item.cosine is not None),
        key=lambda item: (-(item.cosine or 0.0), item.chunk_id),
    )
    scores = normalized_cosine(np.array([item.cosine for item in found], dtype=np.float64))
    return Arm("semantic", [item.chunk_id for item in found], scores, weight)


def _keyword_arm(
    candidates: Sequence[Candidate], terms: QueryTerms, depth: int, weight: float
) -> Arm:
    found = sorted(
        (item for item in candidates if item.bm25 is not None),
        key=lambda item: (-(item.bm25 or 0.0), item.chunk_id),
    )
    scores = terms.normalized(np.array([item.bm25 for item in found], dtype=np.float64))
    return Arm(
        "keyword",
        [item.chunk_id for item in found],
        scores,
        weight,
        unseen_score(scores, depth),
    )


def _weight(choice: FusionChoice | None, arm: str, ranking: Ranking) -> float:
    own = getattr(choice, arm) if choice else None
    default = ranking.fusion_semantic if arm == "semantic" else ranking.fusion_keyword
    return float(default if own is None else own)


def _scored(candidate: Candidate, hit: FusedHit, method: str) -> Candidate:
    candidate.score = hit.score
    candidate.trace["fusion"] = {
        "method": method,
        "score": hit.score,
        "arms": {
            name: {"rank": part.rank, "normalized": part.normalized, "share": part.share}
            for name, part in hit.contributions.items()
        },
    }
    return candidate
