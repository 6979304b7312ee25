"""Calibration of a generation: what the cosines of its model mean among its own texts. Pure.

Cosines of unrelated texts are near 0 under one model and near .8 under another, and a model may
know nothing of the language or the subject of a collection. Both are measured on a sample of the
chunks, without a query and without the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ability_search.collection import CALIBRATION, Calibration
from ability_search.store.records import WeightedChunk, source_of
from ability_search.text.bm25 import inverse_document_frequency
from ability_search.text.term_statistics import TermStatistics

Matrix = npt.NDArray[np.floating[Any]]

SAMPLE: Final = 800
"""Number of chunks to measure."""
_SOME: Final = 3
"""Number of documents from which cosines are measured."""
_MANY: Final = 20
"""Number of documents from which the agreement of vectors and terms is."""
_NEIGHBOURS: Final = 3
_CLOSEST: Final = 0.02
"""Minimum of the difference between near and random cosines."""


def calibration_of(chunks: Sequence[WeightedChunk], statistics: TermStatistics) -> Calibration:
    """Measure a generation on a random sample of its chunks.

    Args:
        chunks: n chunks with terms, weights and embeddings.
        statistics: Term statistics of the generation.

    Returns:
        The mean cosine of chunks of different documents (``chance``), that of each chunk to its
        nearest neighbour in another document (``near``), and the ``agreement`` of vectors with
        terms, see :func:`_agreement`. What needs more documents than there are is assumed.
    """
    known = [chunk for chunk in chunks if chunk.embedding is not None]
    numbers = np.unique([source_of(chunk.chunk_id) for chunk in known], return_inverse=True)[1]
    documents = len(np.unique(numbers))
    if documents < _SOME:
        return CALIBRATION
    vectors = np.array([chunk.embedding for chunk in known], np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    others = numbers[:, None] != numbers[None, :]
    cosines = np.where(others, vectors @ vectors.T, np.float32(-1))
    chance, near = float(cosines[others].mean()), float(cosines.max(axis=1).mean())
    agreement = CALIBRATION.agreement
    if documents >= _MANY:
        halves = (np.where(others, half, 0) for half in _shared_terms(known, statistics))
        agreement = _agreement(cosines, *halves)
    return Calibration(
        round(chance, 4), round(max(near, chance + _CLOSEST), 4), round(agreement, 4)
    )


def _agreement(cosines: Matrix, one: Matrix, other: Matrix) -> float:
    """Return how far neighbours by vector are neighbours by terms, 0 to about 1.

    The terms of a chunk are split into halves. Neighbours by vector share few terms with it if the
    model knows little of the texts, but also if the texts have few terms in common; neighbours by
    one half tell the latter, by how far they agree with the other half. So the agreement of the
    vectors with the halves is divided by the square root of that: the correction for attenuation of
    Spearman, The Proof and Measurement of Association between Two Things (1904).

    Args:
        cosines: Of each chunk to each chunk, shape (n, n); less than any for those of its own
            document.
        one: BM25 of each chunk by one half of the terms of each, shape (n, n); 0 in its document.
        other: The same by the other half.
    """
    by_vector, by_one, by_other = map(_nearest, (cosines, one, other))
    reliability = (_share(other, by_one) + _share(one, by_other)) / 2
    found = (_share(one, by_vector) + _share(other, by_vector)) / 2
    return found / reliability**0.5 if reliability > 0 else 0.0


def _nearest(scores: Matrix) -> npt.NDArray[np.intp]:
    return np.argsort(-scores, axis=1, kind="stable")[:, :_NEIGHBOURS]


def _share(scores: Matrix, chosen: npt.NDArray[np.intp]) -> float:
    """Return the mean score of the chosen chunks, divided by the best score of any."""
    best = scores.max(axis=1)
    means = np.take_along_axis(scores, chosen, axis=1).mean(axis=1)
    known = best > 0
    return float((means[known] / best[known]).mean()) if known.any() else 0.0


def _shared_terms(chunks: Sequence[WeightedChunk], statistics: TermStatistics) -> list[Matrix]:
    """Return BM25 of each chunk by the terms of each, those with even and odd ids apart.

    Two arrays of shape (n, n).
    """
    every = np.concatenate([np.asarray(chunk.terms, np.int32) for chunk in chunks])
    values = np.concatenate([np.asarray(chunk.weights, np.float32) for chunk in chunks])
    rows = np.repeat(np.arange(len(chunks)), [len(chunk.terms) for chunk in chunks])
    ids, columns, having = np.unique(every, return_inverse=True, return_counts=True)
    frequencies = statistics.document_frequencies(ids)
    informations = inverse_document_frequency(frequencies, statistics.chunks).astype(np.float32)
    found = []
    for parity in (0, 1):
        shared = (ids % 2 == parity) & (having > 1)
        places = np.cumsum(shared) - 1
        kept = shared[columns]
        weights = np.zeros((len(chunks), int(shared.sum())), np.float32)
        weights[rows[kept], places[columns[kept]]] = values[kept]
        found.append(np.where(weights > 0, informations[shared], 0) @ weights.T)
    return found
