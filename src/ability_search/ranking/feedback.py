"""Pseudo-relevance feedback: weights, moved vectors and expansion terms."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.text.bm25 import QueryTerms, inverse_document_frequency
from ability_search.text.term_ids import are_of_content
from ability_search.text.term_statistics import TermStatistics

Floats = npt.NDArray[np.float64]

TAU: Final = 0.1


def feedback_weights(scores: npt.ArrayLike, *, tau: float = TAU) -> Floats:
    """Return the weight of each feedback hit: ``exp((s_j - s_1) / tau)``, scaled to sum 1.

    A clear winner gets nearly all the weight; hits of equal score get equal weights.

    Args:
        scores: scores of the first hits, best first, shape (m,), m >= 1.
        tau: difference in score that makes a factor of e; > 0.
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
    """Return cosines to the query vector moved towards its first hits, without computing it.

    For ``q + beta sum_j w_j t_j`` (Rocchio, Relevance Feedback in Information Retrieval, 1971) the
    cosine of a chunk d is, all vectors being of unit length::

        (q.d + beta sum_j w_j t_j.d)
        / sqrt(1 + 2 beta sum_j w_j q.t_j + beta^2 sum_jk w_j w_k t_j.t_k)

    Args:
        cosines: cosines of n chunks to the query, shape (n,); the m feedback chunks come first.
        likeness: cosines of each chunk to those m, shape (n, m), m <= n.
        weights: weights of those m, shape (m,), summing to 1.
        beta: how far the vector moves; 0 leaves the cosines unchanged.

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
    """Return the query vector moved towards its first hits, ``q + beta sum_j w_j t_j``, normalized.

    Args:
        vector: query vector of unit length, shape (d,).
        taught: vectors of the m feedback hits, of unit length, shape (m, d).
        weights: weights of those m, shape (m,), summing to 1.
        beta: how far the vector moves.

    Returns:
        Shape (d,), of unit length; the query vector itself if the sum is zero.
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
    """Return the expansion terms: those with the greatest ``idf sum_j w_j d_j``.

    ``d_j`` is the term's weight in a hit. Only content terms count that are not in the query and
    that also occur in a chunk outside the feedback hits: others would find nothing new.

    Args:
        taught: ids and weights of the terms of each hit, as stored.
        weights: weights of the hits, shape (m,), summing to 1.
        statistics: term statistics of the collection.
        own: ids of the query's terms.
        count: maximum number of terms.

    Returns:
        The terms with these weights, their sum as information; ties go to the lower ids.
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
