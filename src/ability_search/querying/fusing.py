"""Fusion of the retrievers' candidates into scores in [0, 1], in blocks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ability_search.config.schema import Ranking
from ability_search.querying.candidates import Plan, Pool
from ability_search.querying.folding import folded
from ability_search.querying.model import Candidate, Query
from ability_search.querying.options import FusionChoice
from ability_search.ranking.fusion import (
    Arm,
    Fused,
    convex,
    normalized_cosine,
    peaked_share,
    reciprocal_rank,
    unseen_score,
)
from ability_search.text.bm25 import normalized_by_term

_ARMS = frozenset({"semantic", "keyword"})


def blocks(pool: Pool, plan: Plan, query: Query, ranking: Ranking) -> list[list[Candidate]]:
    """Score the candidates by fusing the retrievers.

    Returns:
        For each depth of the plan, the candidates that a search of that depth adds to the
        previous ones, by chunkId; no block for a depth that adds none. The scores of each block
        are in [0, 1].
    """
    weights = arm_weights(pool, plan, query, ranking)
    candidates = sorted(pool.candidates, key=lambda item: item.chunk_id)
    found: list[list[Candidate]] = []
    listed: set[str] = set()
    for depth in plan.depths:
        reach = [item for item in candidates if min(item.ranks.values()) <= depth]
        if len(reach) == len(listed):
            continue
        arms = _arms(reach, plan, depth, weights)
        fused = _fused(arms, len(reach), query.fusion, ranking)
        block = []
        scored = zip(reach, fused.scores.tolist(), fused.found.tolist(), strict=True)
        for place, (item, score, seen) in enumerate(scored):
            known = seen or not item.ranks.keys() <= _ARMS
            if item.chunk_id in listed or not known:
                continue
            listed.add(item.chunk_id)
            item.fused = item.score = score
            if query.explain:
                item.trace["fusion"] = _trace(place, arms, fused, query.fusion, ranking)
            block.append(item)
        if block:
            found.append(block)
    return folded(found)


def arm_weights(pool: Pool, plan: Plan, query: Query, ranking: Ranking) -> dict[str, float]:
    """Return the weights of the retrievers that were searched, by name; a single one has weight 1.

    By default, a convex combination adapts the weights to how peaked the semantic scores are: if
    its first hits hardly differ, the keyword retriever gets more weight.
    """
    weights = {}
    if plan.vector is not None and "semantic" not in pool.failed:
        weights["semantic"] = _weight(query.fusion, "semantic", ranking)
    if plan.terms is not None and "keyword" not in pool.failed:
        weights["keyword"] = _weight(query.fusion, "keyword", ranking)
    if len(weights) == 1:
        return dict.fromkeys(weights, 1.0)
    if len(weights) == 2 and query.fusion is None and ranking.fusion == "convex":
        share = weights["semantic"] / sum(weights.values())
        cosines = [known for item in pool.candidates if (known := item.semantic) is not None]
        semantic = peaked_share(share, cosines, slope=ranking.fusion_peak)
        return {"semantic": semantic, "keyword": 1.0 - semantic}
    return weights


def _arms(
    candidates: Sequence[Candidate], plan: Plan, depth: int, weights: Mapping[str, float]
) -> list[Arm]:
    """Return the retrievers' lists as cut at ``depth`` candidates."""
    arms = []
    if "semantic" in weights:
        cosines = [item.semantic for item in candidates]
        known = [cosine is not None for cosine in cosines]
        scores = np.where(known, normalized_cosine(np.array(cosines, np.float64)), np.nan)
        arms.append(Arm("semantic", scores, weights["semantic"]))
    if "keyword" in weights and plan.terms is not None:
        names = [each.name for each in plan.searches if each.by is plan.terms]
        raw = np.fmax.reduce([_raw(candidates, name, depth) for name in names])
        words = plan.words if len(weights) > 1 and all(weights.values()) else {}
        by_word = [[item.columns.get(name) or 0.0 for name in words] for item in candidates]
        scores = normalized_by_term(plan.terms, raw, list(words.values()), by_word)
        unseen = unseen_score(scores, depth)
        arms.append(Arm("keyword", scores, weights["keyword"], unseen, raw))
    return arms


def _raw(candidates: Sequence[Candidate], name: str, depth: int) -> list[float]:
    """Return the raw scores of a search of ``depth``; NaN for candidates it did not find."""
    beyond = depth + 1
    return [
        item.values[name] if item.ranks.get(name, beyond) <= depth else math.nan
        for item in candidates
    ]


def _fused(arms: Sequence[Arm], count: int, choice: FusionChoice | None, ranking: Ranking) -> Fused:
    if not arms:  # only searches of options, neither of the two retrievers
        return Fused(np.zeros(count), {}, np.zeros(count, np.bool_))
    if (choice.method if choice else ranking.fusion) == "convex":
        return convex(arms)
    return reciprocal_rank(
        arms, k=choice.k if choice and choice.k is not None else ranking.fusion_k
    )


def _weight(choice: FusionChoice | None, arm: str, ranking: Ranking) -> float:
    own = getattr(choice, arm) if choice else None
    default = ranking.fusion_semantic if arm == "semantic" else ranking.fusion_keyword
    return float(default if own is None else own)


def _trace(
    place: int, arms: Sequence[Arm], fused: Fused, choice: FusionChoice | None, ranking: Ranking
) -> dict[str, Any]:
    """Return how the score of the candidate at this place was computed."""
    parts = {}
    for arm in arms:
        score, rank = float(arm.scores[place]), float(arm.ranks[place])
        share = fused.shares.get(arm.name)
        parts[arm.name] = {
            "rank": None if np.isnan(rank) else int(rank),
            "normalized": arm.unseen if np.isnan(score) else score,
            "share": 0.0 if share is None else float(share[place]),
        }
    return {
        "method": choice.method if choice else ranking.fusion,
        "score": float(fused.scores[place]),
        "arms": parts,
    }
