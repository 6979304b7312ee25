"""Calibration of a generation: what the cosines of its model mean among its own texts. Pure.

Cosines of unrelated texts are near 0 under one model and near .8 under another, and a model may
know nothing of the language or the subject of a collection. Both are measured on a sample of the
chunks, without a query and without the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ability_search.collection import CALIBRATION, Calibration
from ability_search.store.records import WeightedChunk, source_of
from ability_search.text.bm25 import inverse_document_frequency
from ability_search.text.term_ids import embedded_terms

Matrix = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

SAMPLE: Final = 800
"""Number of chunks to measure."""
_SOME: Final = 3
"""Number of documents from which cosines are measured."""
_MANY: Final = 20
"""Number of documents from which the agreement of vectors and terms is."""
_CLOSEST: Final = 0.02
"""Minimum of the difference between near and random cosines."""
_LEAST: Final = 1e-6
"""Below this a variance or a norm is a rounding error."""


def calibration_of(chunks: Sequence[WeightedChunk]) -> Calibration:
    """Measure a generation on a random sample of its chunks.

    Args:
        chunks: n chunks with terms, weights and embeddings.

    Returns:
        The mean cosine of chunks of different documents (``chance``), that of each chunk to its
        nearest neighbour in another document (``near``), and the ``agreement`` of vectors with
        terms, see :func:`_agreement`. What needs more documents than there are, or terms that they
        share, is assumed.
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
        agreement = _agreement(cosines, _term_weights(known), others)
    return Calibration(
        round(chance, 4), round(max(near, chance + _CLOSEST), 4), round(agreement, 4)
    )


def _agreement(cosines: Matrix, weights: Matrix, others: Mask) -> float:
    """Return the correlation of cosines with the information of shared words, given their number.

    Any vector is near others that have its words. One of a model that knows the texts is nearer to
    those that share rare words with it than to those that share as many common ones. So this is the
    partial correlation of the cosines with BM25 by the terms of each chunk, given the same sum
    without inverse document frequencies. It lies in [-1, 1], at about 0 or below if the model does
    not know which words matter.

    Args:
        cosines: Of each chunk to each chunk, shape (n, n).
        weights: Of each term in each chunk, shape (n, terms).
        others: Which pairs are of different documents, shape (n, n).
    """
    present = (weights > 0).astype(np.float32)
    informations = inverse_document_frequency(present.sum(axis=0), len(weights)).astype(np.float32)
    sums = ((present * informations) @ weights.T, present @ weights.T)
    rows = [_standardized(each, others)[others] for each in (cosines, *sums)]
    if not all(row.any() for row in rows):
        return CALIBRATION.agreement
    correlations: Matrix = np.asarray(np.corrcoef(rows))
    informed, counted, both = correlations[np.triu_indices(3, 1)].tolist()
    alone = (1 - counted**2) * (1 - both**2)
    if alone <= _LEAST:
        return CALIBRATION.agreement
    return float(informed - counted * both) / math.sqrt(alone)


def _standardized(scores: Matrix, others: Mask) -> Matrix:
    """Return scores with mean 0 and norm 1 in the ``others`` of each row, or 0 if all are equal."""
    means = np.where(others, scores, 0).sum(axis=1, keepdims=True) / others.sum(1, keepdims=True)
    centred = np.where(others, scores - means, 0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    found: Matrix = np.divide(centred, norms, out=np.zeros_like(centred), where=norms > _LEAST)
    return found


def _term_weights(chunks: Sequence[WeightedChunk]) -> Matrix:
    """Return the greatest weight of each shared term of the embedded texts, shape (n, terms)."""
    every = np.concatenate([np.asarray(chunk.terms, np.int32) for chunk in chunks])
    values = np.concatenate([np.asarray(chunk.weights, np.float32) for chunk in chunks])
    rows = np.repeat(np.arange(len(chunks)), [len(chunk.terms) for chunk in chunks])
    terms, columns = np.unique(embedded_terms(every), return_inverse=True)
    found = np.zeros((len(chunks), len(terms)), np.float32)
    np.maximum.at(found, (rows, columns), values)
    return found[:, (terms >= 0) & ((found > 0).sum(axis=0) > 1)]
