"""The query learns from its own first hits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.analysis import are_of_content
from ability_search.ranking.bm25 import QueryTerms, inverse_document_frequency
from ability_search.ranking.statistics import TermStatistics

Floats = npt.NDArray[np.float64]

TAU: Final = 0.1


def feedback_weights(scores: npt.ArrayLike, *, tau: float = TAU) -> Floats:
    """Share of each first hit in what is learned: ``exp((s_j - s_1) / tau)``, scaled to sum 1.

    A clear winner counts nearly alone, hits that are level count evenly.

    Args:
        scores: of the first hits, best first, shape (m,), m >= 1.
        tau: the difference in score that makes a factor of e; > 0.
    """
    found = np.asarray(scores, dtype=np.float64)
    raw = np.exp((found - found[0]) / tau)
    return np.asarray(raw / raw.sum())


def rocchio_cosines(
    cosines: npt.ArrayLike,
    likeness: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    beta: float,
) -> Floats:
    """Cosines to the query vector moved towards its first hits, without that vector.

    To ``q + beta sum_j w_j t_j`` (Rocchio, Relevance Feedback in Information Retrieval, 1971) a
    chunk d has, all vectors being of unit length, the cosine::

        (q.d + beta sum_j w_j t_j.d)
        / sqrt(1 + 2 beta sum_j w_j q.t_j + beta^2 sum_jk w_j w_k t_j.t_k)

    Args:
        cosines: of n chunks to the query, shape (n,); the m chunks learned from come first.
        likeness: of each chunk to those m, shape (n, m), m <= n.
        weights: of those m, shape (m,), summing to 1.
        beta: how far the vector moves; 0 leaves the cosines as they are.

    Returns:
        Shape (n,).
    """
    own, like, share = (np.asarray(each, np.float64) for each in (cosines, likeness, weights))
    count = len(share)
    towards = own[:count] @ share
    together = share @ like[:count] @ share
    length = np.sqrt(1 + 2 * beta * towards + beta**2 * together)
    return np.asarray((own + beta * like @ share) / length)


def moved_vector(
    vector: npt.ArrayLike, taught: npt.ArrayLike, weights: npt.ArrayLike, *, beta: float
) -> Floats:
    """The query vector moved towards its first hits, ``q + beta sum_j w_j t_j``, at unit length.

    Args:
        vector: of the query, at unit length, shape (d,).
        taught: vectors of the m hits learned from, at unit length, shape (m, d).
        weights: of those m, shape (m,), summing to 1.
        beta: how far it moves.

    Returns:
        Shape (d,); the query's own where there would be no direction left.
    """
    own, towards, share = (np.asarray(each, np.float64) for each in (vector, taught, weights))
    moved = own + beta * share @ towards
    length = float(np.linalg.norm(moved))
    return np.asarray(moved / length if length > 0 else own)


def learned_terms(
    taught: Sequence[tuple[Sequence[int], Sequence[float]]],
    weights: npt.ArrayLike,
    statistics: TermStatistics,
    *,
    own: Collection[int],
    count: int,
) -> QueryTerms:
    """The terms that mark the first hits: those that weigh most of ``idf sum_j w_j d_j``.

    ``d_j`` is the term's weight in a hit. Only terms in the content count, which the query has
    not, and which a chunk has that was not learned from: others would find nothing new.

    Args:
        taught: ids and weights of the terms of each hit, as stored.
        weights: of the hits, shape (m,), summing to 1.
        statistics: of the collection that is searched.
        own: ids of the query's terms.
        count: most terms.

    Returns:
        The terms with these weights, their sum as information; of equal weight the lower ids.
    """
    shares = np.asarray(weights, dtype=np.float64)
    every = np.array([each for found, _ in taught for each in found], np.int32)
    shared = np.array(
        [share * each for share, (_, found) in zip(shares, taught, strict=True) for each in found]
    )
    ids, places, having = np.unique(every, return_inverse=True, return_counts=True)
    frequencies = statistics.document_frequencies(ids)
    rarity = inverse_document_frequency(frequencies, statistics.chunks)
    values = rarity * np.bincount(places, shared, len(ids))
    known = np.isin(ids, np.array(list(own), np.int32))
    values[~are_of_content(ids) | known | (frequencies <= having)] = 0.0
    best = np.sort(np.argsort(-values, kind="stable")[:count])
    kept = best[values[best] > 0]
    chosen: list[float] = values[kept].tolist()
    return QueryTerms(tuple(ids[kept].tolist()), tuple(chosen), sum(chosen))
