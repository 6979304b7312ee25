"""Fusion of the retrievers' scores, in blocks. Pure.

The default is a weighted mean of two scores, each of which means the same in every query, under
every model and in every collection, so that their mean does too: how near a text is to the query,
relative to what the model's cosines are like in the collection (:func:`nearness`), and which share
of the query's information its words carry (:meth:`.QueryTerms.normalized`). The other method uses
only ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import inf, isfinite
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ability_search.collection import Collection
from ability_search.documents import Floats
from ability_search.errors import InvalidInput
from ability_search.search.candidates import Candidate, Candidates, adjust, best_first, put_behind
from ability_search.search.wants import BM25, Retriever
from ability_search.store.records import Share

TAU: Final = 0.1
"""Difference in score that makes a factor of e in the weight of a hit."""
_UNAWARE: Final = 0.05
"""Agreement with words up to which a model tells nothing about the texts of a collection."""
_AWARE: Final = 0.15
"""Agreement from which a model counts in full."""
_ALIKE: Final = 0.999
_FAR, _NEAR = 0.05, 2 / 3
"""Scores of cosines that are far and near."""
_SUPPORTED: Final = 0.3
"""Share of a query's words in the first hits by vector from which these count in full."""
_FIRST: Final = 3


class Arm(NamedTuple):
    """The scores of n candidates by one retriever.

    Attributes:
        scores: In [0, 1], shape (n,).
        ranks: From 1, infinite for candidates that it did not return, shape (n,); empty if they
            neither count nor are explained.
    """

    scores: Floats
    ranks: Floats


def nearness(cosines: npt.ArrayLike | list[float | None], collection: Collection) -> Floats:
    """Map cosines to a query to [0, 1], increasing, linear between four points.

    The mean cosine of nearest neighbours in the collection becomes 2/3, and what is as far below
    that of random pairs as neighbours are above it .05: texts seldom are less like each other.
    NaN, the cosine of a zero vector, becomes 0, and so does ``None``.

    Args:
        cosines: Any shape.
        collection: Measured by :mod:`.calibration`.
    """
    far, near = _far_and_near(collection)
    found = np.array(cosines, dtype=np.float64)
    known = np.where(np.isnan(found), -1.0, found)
    return np.asarray(np.interp(known, (-1.0, far, near, 1.0), (0.0, _FAR, _NEAR, 1.0)))


def _far_and_near(collection: Collection) -> tuple[float, float]:
    """Return the cosines of texts that are far from and near to a query."""
    near = min(collection.near, _ALIKE)
    return max(2 * collection.chance - collection.near, -_ALIKE), near


def trust(collection: Collection) -> float:
    """Return how far the model of a collection counts next to the words, .01 to 1.

    It rises linearly with the agreement of vectors with words, see :mod:`.calibration`. A model
    that tells nothing still orders what has none of the words.
    """
    return min(1.0, max(0.01, (collection.agreement - _UNAWARE) / (_AWARE - _UNAWARE)))


def support(semantic: Floats, keyword: Floats) -> float:
    """Return how far the words of a query support its first hits by vector, .01 to 1.

    The mean keyword score of the first three by vector, divided by the best one, and by .3. Vectors
    tell less than words about a query whose words are in few of these.

    Args:
        semantic: Scores of n candidates, shape (n,).
        keyword: The same of the keyword retriever.
    """
    best = float(keyword.max(initial=0.0))
    if not best > 0:
        return 1.0
    first = np.argsort(-semantic, kind="stable")[:_FIRST]
    return min(1.0, max(0.01, float(keyword[first].mean()) / best / _SUPPORTED))


def fuse(candidates: Candidates) -> None:
    """Score the candidates by fusing the retrievers.

    The blocks are, for each depth of the request, the candidates that a search of it adds to the
    previous ones, by chunkId; there is none for a depth that adds nothing. What only a deeper
    search tells of a candidate does not count. A candidate that only a retriever of weight 0 found
    is left out.
    """
    for item in candidates.found if len(candidates.request.depths) > 1 else ():
        _forget_deeper(item, candidates.request.retrieving)
    weights = retriever_weights(candidates)
    ignored = {
        name
        for by in candidates.request.retrievers
        if not weights.get(by)
        for name in candidates.request.names(by)
    }
    counted = [item for item in candidates.found if not item.ranks.keys() <= ignored]
    every = sorted(counted, key=attrgetter("depth", "chunk_id"))
    blocks = [list(block) for _, block in groupby(every, key=attrgetter("depth"))]
    arms: dict[str, Arm] = {
        by: _arm(by, every, candidates) for by in candidates.request.retrievers if by in weights
    }
    if len(arms) > 1 and candidates.query.asked.fusion is None:
        first = len(blocks[0]) if blocks else 0
        weights["semantic"] *= support(*(arms[by].scores[:first] for by in ("semantic", "keyword")))
    total = sum(weights.values())
    candidates.weights = {by: weight / total for by, weight in weights.items()}
    shares = _shares(arms, candidates)
    scores = np.minimum(sum(shares.values(), np.zeros(len(every))), 1.0)
    explain = candidates.query.asked.explain
    for place, (item, score) in enumerate(zip(every, scores.tolist(), strict=True)):
        item.fused = item.score = score
        if explain:
            item.trace["fusion"] = {
                "method": method_of(candidates),
                "score": score,
                "arms": _traced(arms, shares, place),
            }
    if method_of(candidates) == "convex":
        candidates.relevance = round(float(scores.max(initial=0.0)), 3)
    candidates.blocks = fold_kinds(blocks) if any(item.stands_for for item in every) else blocks


def join_blocks(candidates: Candidates) -> None:
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


def fuse_phrasings(lists: Sequence[Candidates]) -> None:
    """Rank the candidates of a query's phrasings by their mean scores, in the first of the lists.

    Of each chunk the candidate of the phrasing that scored it best is kept. A phrasing that did
    not find it scores it half the last one that it found at that depth, as the score lies between
    that and 0; if it found fewer than it looked for, there are no more: 0. As in :func:`fuse`, what
    only deeper searches find comes behind.

    Args:
        lists: Ranked candidates of each phrasing, at least one.
    """
    first = lists[0]
    found = [{item.chunk_id: item for item in own.ranked} for own in lists]
    depths = sorted({item.depth for own in lists for item in own.ranked})
    blocks: list[list[Candidate]] = []
    listed: set[str] = set()
    for depth in depths:
        known = [
            {name: item for name, item in items.items() if item.depth <= depth} for items in found
        ]
        unseen = [
            min(item.score for item in items.values()) / 2 if len(items) >= depth else 0.0
            for items in known
        ]
        added = sorted(set().union(*known) - listed)
        blocks.append([_joined(name, known, unseen, lists) for name in added])
        listed.update(added)
    first.blocks = blocks
    join_blocks(first)
    first.degraded = next((own.degraded for own in lists if own.degraded), None)
    first.warnings = list(dict.fromkeys(text for own in lists for text in own.warnings))
    relevances = [own.relevance for own in lists if own.relevance is not None]
    first.relevance = max(relevances, default=None)
    for own in lists[1:]:
        first.clock.at_least(own.clock)


def _joined(
    chunk_id: str,
    known: Sequence[Mapping[str, Candidate]],
    unseen: Sequence[float],
    lists: Sequence[Candidates],
) -> Candidate:
    """Return the candidate of the phrasing that scored a chunk best, with its mean score."""
    found = [
        (own.query.asked.query, items[chunk_id])
        for own, items in zip(lists, known, strict=True)
        if chunk_id in items
    ]
    _, best = max(found, key=lambda each: each[1].score)
    best.ranks = {name: rank for _, item in found for name, rank in item.ranks.items()} | best.ranks
    scores = [
        items[chunk_id].score if chunk_id in items else score
        for items, score in zip(known, unseen, strict=True)
    ]
    found_by = [
        {"query": query, "rank": item.place + 1, "score": item.score} for query, item in found
    ]
    adjust(best, "queries", sum(scores) / len(scores), foundBy=found_by)
    return best


def method_of(candidates: Candidates) -> str:
    """Return the fusion method: ``convex`` or ``rrf``."""
    option = candidates.query.asked.fusion
    return option.method if option else candidates.ranking.fusion


def retriever_weights(candidates: Candidates) -> dict[str, float]:
    """Return the weights of the retrievers that were searched, relative to their sum.

    Without weights in the query, the model counts as far as it can be trusted.

    Raises:
        InvalidInput: if all of them are 0 (``fusion.weights``).
    """
    request, ranking = candidates.request, candidates.ranking
    option = candidates.query.asked.fusion
    if option is None:
        given = {
            "semantic": ranking.fusion_semantic * trust(candidates.collection),
            "keyword": ranking.fusion_keyword * request.specific,
        }
    else:
        given = {by: float(option.weights.get(by, 1.0)) for by in request.retrievers}
    searched: dict[str, float] = {
        by: given[by] for by in request.retrievers if by not in candidates.failed
    }
    if len(searched) < 2:
        return dict.fromkeys(searched, 1.0)
    if not sum(searched.values()) > 0:
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")
    return searched


def expected_orders(candidates: Candidates) -> list[dict[str, Share]]:
    """Return the orders in which the first hits of :func:`fuse` probably come first.

    The first has its weights, with scores that are simpler: linear beyond near too, and without the
    exponential. The second is by words alone, for queries whose words support no hit by vector.
    The texts of a page of ten are among 10 to 15 so; on three judged sets 2 to 6 % of the queries
    need more, and 10 to 57 % with ten by the weighted sum of the raw scores alone.
    """
    weights, terms = retriever_weights(candidates), candidates.request.terms
    far, near = _far_and_near(candidates.collection)
    shares = {}
    if "semantic" in weights:
        slope = (_NEAR - _FAR) / max(near - far, 1e-6)
        shares["semantic"] = Share(weights["semantic"] * slope)
    if "keyword" in weights and terms is not None:
        shares["keyword"] = Share(weights["keyword"], terms.information or 1.0)
    return [shares, {"keyword": Share(1.0)}] if len(shares) > 1 else [shares]


def _forget_deeper(item: Candidate, known: Sequence[str]) -> None:
    """Drop what only a deeper search tells of a candidate than the one that found it.

    All candidates have the scores of ``known`` retrievers.
    """
    for name in [name for name, rank in item.ranks.items() if rank > item.depth]:
        del item.ranks[name]
        if name not in known:
            item.values.pop(name, None)


def _arm(by: Retriever, every: Sequence[Candidate], candidates: Candidates) -> Arm:
    names = candidates.request.names(by)
    ranks: list[float] = []
    if candidates.query.asked.explain or method_of(candidates) != "convex":
        found = [item.ranks for item in every]
        ranks = [min([own[name] for name in names if name in own], default=inf) for own in found]
    if by == "semantic":
        cosines = [item.cosine if item.moved is None else item.moved for item in every]
        return Arm(nearness(cosines, candidates.collection), np.array(ranks))
    terms = candidates.request.terms
    assert terms is not None
    values = [(item.values, item.columns) for item in every]
    if len(names) == 1:  # as usual
        raw = [own[by] if by in own else other.get(BM25) or 0.0 for own, other in values]
    else:
        raw = [
            max([own[name] for name in names if name in own] or [other.get(BM25) or 0.0])
            for own, other in values
        ]
    return Arm(terms.normalized(raw), np.array(ranks))


def _shares(arms: Mapping[str, Arm], candidates: Candidates) -> dict[str, Floats]:
    """Return the part of each retriever in the fused scores.

    By default the weighted mean of the scores; with reciprocal rank fusion (Cormack, Clarke &
    Buettcher, 2009) that of ``(k + 1) / (k + rank)``: 1 is first by every retriever.
    """
    option, weights = candidates.query.asked.fusion, candidates.weights
    if method_of(candidates) == "convex":
        return {by: weights[by] * arm.scores for by, arm in arms.items()}
    k = candidates.ranking.fusion_k if option is None or option.k is None else option.k
    return {by: weights[by] * (k + 1) / (k + arm.ranks) for by, arm in arms.items()}


def _traced(arms: Mapping[str, Arm], shares: Mapping[str, Floats], place: int) -> dict[str, Any]:
    """Return how the score of a candidate was computed."""
    return {
        by: {
            "rank": int(arm.ranks[place]) if isfinite(arm.ranks[place]) else None,
            "normalized": float(arm.scores[place]),
            "share": float(shares[by][place]),
        }
        for by, arm in arms.items()
    }


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
                for kind, raw in item.kinds.items():
                    target.kinds[kind] = max(raw, target.kinds.get(kind, raw))
                if item.kind_cosine is not None:
                    target.kind_cosine = max(item.kind_cosine, target.kind_cosine or -1.0)
            other = best.get(target.chunk_id)
            if other is None or item.score > other.score:
                best[target.chunk_id] = item
        listed |= best.keys()
        if best:
            folded.append([_replaced(item) for item in best.values()])
    return folded


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
