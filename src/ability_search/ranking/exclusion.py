"""Demotion by exclusions, and contrastive feedback."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MEANING_WEIGHT: Final = 0.5
WORDS_WEIGHT: Final = 0.3


def aboutness(excluded_cosines: Floats, excluded_coverage: Floats) -> Floats:
    """Return how much candidates are about an excluded or another phrase, 0 to 1.

    The mean of ``x`` and ``c^2`` of :func:`demoted`, weighted as there.

    Args:
        excluded_cosines: ``x``, in [0, 1], shape (n,).
        excluded_coverage: ``c``, in [0, 1], shape (n,).
    """
    weighted = MEANING_WEIGHT * excluded_cosines + WORDS_WEIGHT * excluded_coverage**2
    return np.asarray(weighted / (MEANING_WEIGHT + WORDS_WEIGHT))


def kinship(likeness: Floats, about: Floats, *, example: float) -> Floats:
    """Return how similar candidates are to an excluded example without being about the exclusion.

    ``max(0, l) max(0, 1 - a / a_1)``: 0 for the example itself, and for candidates that are about
    the excluded phrase as much as the example.

    Args:
        likeness: Cosines to the example, ``l``, shape (n,).
        about: The :func:`aboutness` of the candidates, ``a``, shape (n,).
        example: That of the example, ``a_1``, > 0.

    Returns:
        Shape (n,), in [0, 1].
    """
    return np.asarray(np.clip(likeness, 0.0, 1.0) * np.maximum(0.0, 1.0 - about / example))


def demoted(
    scores: Floats,
    *,
    cosines: Floats,
    excluded_cosines: Floats,
    excluded_coverage: Floats,
    meaning: float = MEANING_WEIGHT,
    words: float = WORDS_WEIGHT,
) -> Floats:
    """Lower the scores of candidates that are about what is excluded; none falls below 0.

    ``score - meaning max(0, x - s) - words c^2``: by how much closer a candidate is to an excluded
    phrase (``x``) than to the query (``s``), and by the share ``c`` of the phrase's words that it
    has, weighted by their information. The square is for phrases of several words: a text with
    half of them is mostly about something else.

    Args:
        scores: Fused scores in [0, 1], shape (n,), as all arrays here.
        cosines: Cosines to the query without its exclusions, in [0, 1].
        excluded_cosines: Cosines to the closest excluded phrase, in [0, 1].
        excluded_coverage: BM25 of an excluded phrase divided by its information, at most 1; of
            several phrases the highest.
        meaning: Weight of the cosines.
        words: Weight of the coverage.
    """
    closer = np.maximum(0.0, excluded_cosines - cosines)
    return np.asarray(np.maximum(0.0, scores - meaning * closer - words * excluded_coverage**2))
