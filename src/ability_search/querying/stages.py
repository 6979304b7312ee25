"""The stages between candidates and hits, in the order they run. Pure.

1. :func:`fused`: one score for each candidate, from its scores in the arms; best first, equal
   scores by chunkId.
2. :func:`above`: the floor of ``minScore``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
    depths: Sequence[int],
    choice: FusionChoice | None,
    ranking: Ranking,
    traced: bool = False,
) -> list[Candidate]:
    """Score candidates in [0, 1] and order them.

    What only a deeper search finds comes after all that a shallower one finds, its score scaled
    below theirs: so the pages of a query are cut from one list, however deep each has to look.

    Args:
        candidates: Each chunk once.
        terms: The query's terms; ``None`` if the keyword arm was not searched.
        semantic: Whether the semantic arm was searched.
        depths: Candidates an arm yields at each depth; the last is what the arms were asked for.
        choice: The caller's fusion; ``None`` for the default.
        ranking: The defaults.
        traced: Whether to note on each candidate how its score came about.
    """
    by_id = {candidate.chunk_id: candidate for candidate in candidates}
    listed: dict[str, Candidate] = {}
    ceiling = 1.0
    for depth in depths:
        reach = [item for item in candidates if min(item.ranks.values()) <= depth]
        if len(reach) == len(listed):
            continue
        for hit in _hits(_arms(reach, terms, semantic, depth, choice, ranking), choice, ranking):
            if hit.id in listed:
                continue
            item = listed[hit.id] = by_id[hit.id]
            item.score = ceiling * hit.score
            if traced:
                item.trace["fusion"] = _trace(hit, choice.method if choice else ranking.fusion)
        ceiling = min((item.score for item in listed.values()), default=1.0)
    return list(listed.values())


def above(candidates: Sequence[Candidate], floor: float | None, *, mode: Mode) -> list[Candidate]:
    """Leave out what is below ``minScore``: by its cosine, in keyword mode by its score."""
    if floor is None:
        return list(candidates)
    if mode == "keyword":
        return [item for item in candidates if item.score >= floor]
    return [item for item in candidates if item.cosine is not None and item.cosine >= floor]


def _arms(
    candidates: Sequence[Candidate],
    terms: QueryTerms | None,
    semantic: bool,
    depth: int,
    choice: FusionChoice | None,
    ranking: Ranking,
) -> list[Arm]:
    """The lists as arms asked for ``depth`` candidates give them."""
    arms = []
    if semantic:
        arms.append(_semantic_arm(candidates, _weight(choice, "semantic", ranking)))
    if terms is not None:
        arms.append(_keyword_arm(candidates, terms, depth, _weight(choice, "keyword", ranking)))
    return [replace(arms[0], weight=1.0)] if len(arms) == 1 else arms


def _hits(arms: Sequence[Arm], choice: FusionChoice | None, ranking: Ranking) -> list[FusedHit]:
    if (choice.method if choice else ranking.fusion) == "convex":
        return convex(arms)
    return reciprocal_rank(
        arms, k=choice.k if choice and choice.k is not None else ranking.fusion_k
    )


def _semantic_arm(candidates: Sequence[Candidate], weight: float) -> Arm:
    found = sorted((-item.cosine, item.chunk_id) for item in candidates if item.cosine is not None)
    scores = normalized_cosine([-negated for negated, _ in found])
    return Arm("semantic", [chunk_id for _, chunk_id in found], scores, weight)


def _keyword_arm(
    candidates: Sequence[Candidate], terms: QueryTerms, depth: int, weight: float
) -> Arm:
    found = sorted(
        (-item.bm25, item.chunk_id)
        for item in candidates
        if item.bm25 is not None and item.ranks["keyword"] <= depth
    )
    scores = terms.normalized([-negated for negated, _ in found])
    ids = [chunk_id for _, chunk_id in found]
    return Arm("keyword", ids, scores, weight, unseen_score(scores, depth))


def _weight(choice: FusionChoice | None, arm: str, ranking: Ranking) -> float:
    own = getattr(choice, arm) if choice else None
    default = ranking.fusion_semantic if arm == "semantic" else ranking.fusion_keyword
    return float(default if own is None else own)


def _trace(hit: FusedHit, method: str) -> dict[str, Any]:
    return {
        "method": method,
        "score": hit.score,
        "arms": {
            name: {"rank": part.rank, "normalized": part.normalized, "share": part.share}
            for name, part in hit.contributions.items()
        },
    }
