"""Fusion of the retrievers' ranked lists into scores, in blocks. Pure.

Both methods score in [0, 1]. The convex score preserves how good a hit is and hence means the same
in every query with the same retrievers; the reciprocal one uses only ranks.

The default is the convex combination, with weights that follow how far each retriever can be
trusted in a query, see :class:`Trust`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, nan
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ability_search.config.schema import Ranking
from ability_search.documents import Floats
from ability_search.errors import InvalidInput
from ability_search.search.candidates import (
    Candidate,
    Candidates,
    adjust,
    best_first,
    put_behind,
)
from ability_search.search.options import Fusion
from ability_search.search.plan import Plan
from ability_search.search.query import Retriever
from ability_search.search.stage import Ports, Stage
from ability_search.text.bm25 import normalized_by_term

RRF_K: Final = 60.0
SIGNAL_TERMS: Final = 2 / 3
"""Information of an additional signal, in units of the rarest possible term."""
SIGNAL_WEIGHT_LIMIT: Final = 0.5
_RETRIEVERS: Final = frozenset({"semantic", "keyword"})
_FIRST: Final = 10
"""Number of scores that a gap compares."""
_REACH: Final = 0.3
"""Maximum change of a weight by the evidence."""
_AGREEMENT: Final = 0.6
"""Weight of the agreement and of the keyword gap, next to 1 for the semantic gap."""
_USUAL_EVIDENCE: Final = 0.32
"""Mean of the evidence over six judged sets."""


@dataclass(frozen=True, slots=True)
class RankedList:
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


def normalized_cosine(cosines: npt.ArrayLike, chance: float = 0.0) -> Floats:
    """Map cosines to [0, 1]: ``(cosine - chance) / (1 - chance)``, at least 0, as Cohen's kappa.

    NaN, the cosine of a zero vector, becomes 0.

    Args:
        cosines: cosines to the query, any shape.
        chance: cosine of a text that has nothing to do with the query, in [0, 1).
    """
    found = np.fmax(np.asarray(cosines, dtype=np.float64), -1.0)
    return np.asarray(np.clip((found - chance) / (1.0 - chance), 0.0, 1.0))


def unseen_score(scores: Floats, depth: int) -> float:
    """Return the assumed score of a candidate that a retriever with ``depth`` did not return.

    If the list is full, the true score lies between 0 and the last one returned; the middle
    minimizes the greatest error. If the list is not full, the retriever has no more: 0.
    """
    seen = scores[~np.isnan(scores)]
    return float(seen.min()) / 2 if len(seen) and len(seen) >= depth else 0.0


class Trust(NamedTuple):
    """Evidence of which retriever to trust in a query, from the scores of its candidates.

    The gap of a list, ``(s_1 - mean(s_1 .. s_10)) / s_1``, is small if its scores say little about
    which chunk is the right one: a predictor of query performance of the family of Shtok et al.,
    Predicting Query Performance by Query-Drift Estimation (2012). The agreement tells a model that
    does not know the collection's language, or its words, from one that does.

    Attributes:
        semantic_gap: Gap of the semantic scores, in [0, 1).
        keyword_gap: Gap of the keyword scores, in [0, 1).
        agreement: Mean keyword score of the first three semantic hits, divided by the best one.
    """

    semantic_gap: float
    keyword_gap: float
    agreement: float

    def semantic_share(self, usual: float, slope: float) -> float:
        """Return the weight of the semantic retriever, of 1 for both.

        ``usual + slope (g_s + .6 (a - g_k) - .32)``, at most .3 from the usual one.

        Args:
            usual: Weight without evidence, 0 to 1; 0 and 1 are kept.
            slope: Influence of the evidence; 0 keeps the usual weight.
        """
        if usual in (0.0, 1.0):
            return usual
        evidence = self.semantic_gap + _AGREEMENT * (self.agreement - self.keyword_gap)
        moved = np.clip(slope * (evidence - _USUAL_EVIDENCE), -_REACH, _REACH)
        return float(np.clip(usual + moved, 0.0, 1.0))


def relevance(cosine: float, keyword: float, specificity: float) -> float:
    """Return the estimated probability that one of the first three hits answers the query.

    ``1 / (1 + exp(5.1 - 8.1 c - 3 k min(1, 2 s)))``, a logistic regression over the queries of six
    judged sets, and as many queries of other sets that have no answer there (all-MiniLM-L6-v2);
    rounded to three decimals. Words that most chunks have tell nothing, even if all of them match:
    the keyword score counts in full if a term occurs in at most about the square root of the number
    of chunks (``s`` .5).

    Args:
        cosine: The best cosine to the query, ``c``.
        keyword: The best normalized keyword score, ``k``.
        specificity: Information of the most informative term, in units of one that occurs in a
            single chunk, ``s``.
    """
    matched = keyword * min(1.0, 2.0 * specificity)
    return round(1.0 / (1.0 + exp(5.1 - 8.1 * max(0.0, cosine) - 3.0 * matched)), 3)


def trust(semantic: Floats, keyword: Floats) -> Trust | None:
    """Return the evidence in the normalized scores of n candidates by both retrievers.

    Returns:
        ``None`` with fewer than ten semantic scores, or if the best of them is 0.
    """
    known = np.flatnonzero(~np.isnan(semantic))
    first = known[np.argsort(-semantic[known], kind="stable")[:_FIRST]]
    if len(first) < _FIRST or not semantic[first[0]] > 0:
        return None
    best = float(keyword.max())
    return Trust(
        _gap(semantic[first]),
        _gap(np.sort(keyword)[::-1][:_FIRST]),
        float(keyword[first[:3]].mean()) / best if best > 0 else 0.0,
    )


def _gap(first: Floats) -> float:
    return float((first[0] - first.mean()) / first[0]) if first[0] > 0 else 0.0


def signal_weight(information: float, rarest: float) -> float:
    """Return the weight of a signal next to the fused score, 0 to :data:`SIGNAL_WEIGHT_LIMIT`.

    Query words and signal share the score by their information: ``m / (m + n)``, where the words
    carry the information of ``n`` of the rarest terms, and the signal that of ``m``,
    :data:`SIGNAL_TERMS`. The score is ``(1 - w) fused + w signal``.

    Args:
        information: Information of the query's topic, see :mod:`.bm25`.
        rarest: Inverse document frequency of a term in a single chunk, > 0.
    """
    return min(SIGNAL_WEIGHT_LIMIT, SIGNAL_TERMS / (SIGNAL_TERMS + information / rarest))


def convex(lists: Sequence[RankedList]) -> Fused:
    """Fuse by the weighted mean of normalized scores.

    Convex combination with fixed normalization bounds: Bruch, Gai & Ingber, An Analysis of
    Fusion Functions for Hybrid Retrieval (2022). The weights are relative to their sum, which
    includes retrievers without hits, so that scores are comparable whatever was found. With one
    retriever, the result is its scores.

    Args:
        lists: at least one, all of the same candidates.

    Raises:
        InvalidInput: if all weights are 0 (``fusion.weights``).
    """
    counted = _counted(lists)
    total = sum(each.weight for each in counted)
    return _sum_of(
        counted,
        [
            each.weight / total * np.where(np.isnan(each.scores), each.unseen, each.scores)
            for each in counted
        ],
    )


def reciprocal_rank(lists: Sequence[RankedList], *, k: float = RRF_K) -> Fused:
    """Fuse by the weighted sum of ``1 / (k + rank)``.

    Cormack, Clarke & Buettcher, Reciprocal Rank Fusion (2009); divided by its maximum, so that
    1 is first by every retriever. A candidate that a retriever did not return gets nothing from
    it.

    Args:
        lists: at least one, all of the same candidates; ties rank in input order.
        k: rank constant, >= 0.

    Raises:
        InvalidInput: if ``k`` is negative or not a number (``fusion.k``) or all weights are 0.
    """
    if not (isfinite(k) and k >= 0):
        raise InvalidInput("fusion.k", "must be a number of at least 0")
    counted = _counted(lists)
    total = sum(each.weight for each in counted)
    return _sum_of(
        counted,
        [np.nan_to_num(each.weight / total * (k + 1) / (k + each.ranks)) for each in counted],
    )


def _counted(lists: Sequence[RankedList]) -> list[RankedList]:
    counted = [each for each in lists if each.weight > 0]
    if not counted:
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")
    return counted


def _sum_of(lists: Sequence[RankedList], shares: Sequence[Floats]) -> Fused:
    return Fused(
        np.minimum(1.0, np.sum(shares, axis=0)),
        {each.name: share for each, share in zip(lists, shares, strict=True)},
        np.any([~np.isnan(each.scores) for each in lists], axis=0),
    )


async def fuse(candidates: Candidates, _ports: Ports) -> None:
    """Score the candidates by fusing the retrievers.

    The blocks are, for each depth of the plan, the candidates that a search of that depth adds to
    the previous ones, by chunkId; there is none for a depth that adds nothing. The scores of each
    block are in [0, 1].
    """
    query, plan, ranking = candidates.query, candidates.plan, candidates.ranking
    weights = retriever_weights(candidates)
    candidates.weights = {}
    every = sorted(candidates.found, key=lambda item: item.chunk_id)
    blocks: list[list[Candidate]] = []
    listed: set[str] = set()
    for depth in plan.depths:
        reached = [item for item in every if min(item.ranks.values()) <= depth]
        if len(reached) == len(listed):
            continue
        lists = _lists(reached, plan, depth, weights)
        # The first page decides, so that all pages are of one list.
        candidates.weights = candidates.weights or _trusted(lists, reached, candidates)
        lists = [replace(each, weight=candidates.weights[each.name]) for each in lists]
        fused = _fused(lists, len(reached), query.asked.fusion, ranking)
        traced = _traces(lists, fused, query.asked.fusion, ranking) if query.asked.explain else ()
        block = []
        scored = zip(reached, fused.scores.tolist(), fused.found.tolist(), strict=True)
        for place, (item, score, seen) in enumerate(scored):
            known = seen or not item.ranks.keys() <= _RETRIEVERS
            if item.chunk_id in listed or not known:
                continue
            listed.add(item.chunk_id)
            item.depth = depth
            item.fused = item.score = score
            if traced:
                item.trace["fusion"] = traced[place]
            block.append(item)
        if block:
            blocks.append(block)
    candidates.blocks = fold_kinds(blocks)


async def join_blocks(candidates: Candidates, _ports: Ports) -> None:
    """Concatenate the blocks into one list, best first; ties by chunkId.

    Candidates that only a deeper search finds come after those of a shallower one, with their
    scores scaled below: all pages of a query are slices of one list, at any search depth.
    """
    ranked: list[Candidate] = []
    for block in candidates.blocks:
        put_behind(block, ranked, "depth")
        ranked += best_first(block)
    for place, item in enumerate(ranked):
        item.place = place
    candidates.ranked = ranked


async def fuse_phrasings(lists: Sequence[Candidates], ports: Ports) -> None:
    """Fuse the rankings of a query's phrasings into the first of them.

    The method is that of the query, with equal weights. Of each chunk the candidate of the phrasing
    that scored it best is kept. As in :func:`fuse`, what only deeper searches find comes behind.

    Args:
        lists: Ranked candidates of each phrasing, at least one.
        ports: Ports and settings.
    """
    first = lists[0]
    found = [{item.chunk_id: item for item in own.ranked} for own in lists]
    chunk_ids = sorted(set().union(*found))
    depths, scores, places = (
        np.array([[getattr(items.get(each), name, nan) for each in chunk_ids] for items in found])
        for name in ("depth", "score", "place")
    )
    least = np.fmin.reduce(depths)
    blocks: list[list[Candidate]] = []
    for depth in np.unique(least).astype(int).tolist():
        reached = np.flatnonzero(least <= depth)
        ranked = [
            _ranked_list(
                own,
                np.where(depths[n] <= depth, scores[n], nan)[reached],
                places[n, reached],
                depth,
            )
            for n, own in enumerate(lists)
        ]
        fused = _fused(ranked, len(reached), first.query.asked.fusion, first.ranking).scores
        found_by = _found_by(ranked)
        blocks.append([])
        for place in np.flatnonzero(least[reached] == depth).tolist():
            chunk_id = chunk_ids[reached[place]]
            known = [items[chunk_id] for items in found if chunk_id in items]
            item = _best([each for each in known if each.depth == depth])
            adjust(item, "queries", float(fused[place]), foundBy=found_by[place])
            blocks[-1].append(item)
    first.blocks = blocks
    await join_blocks(first, ports)
    first.degraded = next((own.degraded for own in lists if own.degraded), None)
    first.warnings = list(dict.fromkeys(text for own in lists for text in own.warnings))
    relevances = [own.relevance for own in lists if own.relevance is not None]
    first.relevance = max(relevances, default=None)
    for own in lists[1:]:
        first.clock.at_least(own.clock)


def _ranked_list(own: Candidates, scores: Floats, places: Floats, depth: int) -> RankedList:
    """Return the ranking of a phrasing as one list; scores are NaN for what it did not find."""
    unseen = unseen_score(scores, depth)
    return RankedList(own.query.asked.query, scores, unseen=unseen, order=-places)


def _best(found: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the highest score, the first of several; with all its ranks."""
    best = max(found, key=lambda item: item.score)
    best.ranks = {name: rank for item in (*found, best) for name, rank in item.ranks.items()}
    return best


def _found_by(ranked: Sequence[RankedList]) -> list[list[dict[str, Any]]]:
    """Return for each candidate the phrasings that found it, with its rank and score."""
    found: list[list[dict[str, Any]]] = [[] for _ in ranked[0].scores]
    for each in ranked:
        pairs = zip(each.ranks.tolist(), each.scores.tolist(), strict=True)
        for own, (rank, score) in zip(found, pairs, strict=True):
            if isfinite(rank):
                own.append({"query": each.name, "rank": int(rank), "score": score})
    return found


FUSION = Stage("ranking", fuse, step="ranking", computes=True)
JOIN = Stage("ranking", join_blocks, step="ranking", computes=True)


def retriever_weights(candidates: Candidates) -> dict[str, float]:
    """Return the usual weights of the retrievers that were searched, by name.

    A single one has weight 1.
    """
    plan, ranking = candidates.plan, candidates.ranking
    fusion = candidates.query.asked.fusion
    weights = {}
    if plan.vector is not None and "semantic" not in candidates.failed:
        weights["semantic"] = _weight(fusion, "semantic", ranking.fusion_semantic)
    if plan.terms is not None and "keyword" not in candidates.failed:
        weights["keyword"] = _weight(fusion, "keyword", ranking.fusion_keyword)
    return dict.fromkeys(weights, 1.0) if len(weights) == 1 else weights


def _trusted(
    lists: Sequence[RankedList], reached: Sequence[Candidate], candidates: Candidates
) -> dict[str, float]:
    """Return the weights of the retrievers, by default adapted to the evidence in their lists."""
    weights, ranking = {each.name: each.weight for each in lists}, candidates.ranking
    adapts = candidates.query.asked.fusion is None and ranking.fusion == "convex"
    if len(lists) < 2 or not adapts:
        return weights
    semantic, keyword = lists
    found = np.where(np.isnan(keyword.scores), keyword.unseen, keyword.scores)
    cosine = max((item.cosine or 0.0 for item in reached), default=0.0)
    best = float(found.max(initial=0.0))
    candidates.relevance = relevance(cosine, best, candidates.plan.specificity)
    share = weights["semantic"] / sum(weights.values())
    if evidence := trust(semantic.scores, found):
        candidates.trust = evidence._asdict()
        share = evidence.semantic_share(share, ranking.fusion_peak)
    return {"semantic": share, "keyword": 1.0 - share}


def fold_kinds(blocks: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
    """Replace chunks of kinds by the chunks they represent, each with the best of its scores.

    Args:
        blocks: Scored candidates; a chunk in one block is left out of later blocks.
    """
    listed: set[str] = set()
    folded = []
    for block in blocks:
        best: dict[str, Candidate] = {}
        for item in block:
            target = item.stands_for or item
            if target.chunk_id in listed:
                continue
            if target is not item:
                _record_kind(item, target)
            other = best.get(target.chunk_id)
            if other is None or item.score > other.score:
                best[target.chunk_id] = item
        listed |= best.keys()
        if best:
            folded.append([_replaced(item) for item in best.values()])
    return folded


def _record_kind(item: Candidate, target: Candidate) -> None:
    """Record the kinds by which a chunk was found, with the best raw score of each."""
    for kind, raw in item.kinds.items():
        target.kinds[kind] = max(raw, target.kinds.get(kind, raw))
    if item.kind_cosine is not None:
        target.kind_cosine = max(item.kind_cosine, target.kind_cosine or -1.0)


def _replaced(item: Candidate) -> Candidate:
    target = item.stands_for
    if target is None:
        return item
    target.depth = item.depth
    target.fused = target.score = item.score
    target.trace |= item.trace
    target.trace["extended"] = {
        "chunkId": item.chunk_id,
        "kind": item.columns["kind"],
        "score": item.score,
    }
    return target


def _lists(
    candidates: Sequence[Candidate], plan: Plan, depth: int, weights: Mapping[str, float]
) -> list[RankedList]:
    """Return the retrievers' lists as cut at ``depth`` candidates."""
    lists = []
    if "semantic" in weights:
        cosines = [item.semantic for item in candidates]
        known = [cosine is not None for cosine in cosines]
        normalized = normalized_cosine(np.array(cosines, np.float64), plan.chance)
        scores = np.where(known, normalized, np.nan)
        lists.append(RankedList("semantic", scores, weights["semantic"]))
    if "keyword" in weights and plan.terms is not None:
        raw = np.fmax.reduce([_raw(candidates, name, depth) for name in plan.names("keyword")])
        words = plan.words if len(weights) > 1 and all(weights.values()) else {}
        by_word = [[item.columns.get(name) or 0.0 for name in words] for item in candidates]
        scores = normalized_by_term(plan.terms, raw, list(words.values()), by_word)
        unseen = unseen_score(scores, depth)
        lists.append(RankedList("keyword", scores, weights["keyword"], unseen, raw))
    return lists


def _raw(candidates: Sequence[Candidate], name: str, depth: int) -> list[float]:
    """Return the raw scores of a search of ``depth``; NaN for candidates it did not find."""
    beyond = depth + 1
    return [
        item.values[name] if item.ranks.get(name, beyond) <= depth else nan for item in candidates
    ]


def _fused(
    lists: Sequence[RankedList], count: int, option: Fusion | None, ranking: Ranking
) -> Fused:
    if not lists:  # only searches of options, neither of the two retrievers
        return Fused(np.zeros(count), {}, np.zeros(count, np.bool_))
    if (option.method if option else ranking.fusion) == "convex":
        return convex(lists)
    k = ranking.fusion_k if option is None or option.k is None else option.k
    return reciprocal_rank(lists, k=k)


def _weight(option: Fusion | None, retriever: Retriever, default: float) -> float:
    return float(option.weights.get(retriever, default)) if option else float(default)


def _traces(
    lists: Sequence[RankedList], fused: Fused, option: Fusion | None, ranking: Ranking
) -> list[dict[str, Any]]:
    """Return for each candidate how its score was computed."""
    method = option.method if option else ranking.fusion
    found: list[dict[str, Any]] = [
        {"method": method, "score": score, "arms": {}} for score in fused.scores.tolist()
    ]
    for each in lists:
        shares = fused.shares.get(each.name, np.zeros(len(found)))
        values = zip(each.ranks.tolist(), each.scores.tolist(), shares.tolist(), strict=True)
        for own, (rank, score, share) in zip(found, values, strict=True):
            own["arms"][each.name] = {
                "rank": int(rank) if isfinite(rank) else None,
                "normalized": score if isfinite(score) else each.unseen,
                "share": share,
            }
    return found
