"""Demotion of candidates about what a query excludes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np

from ability_search.documents import Floats
from ability_search.search.candidates import Candidate, Candidates, adjust
from ability_search.search.fusion import normalized_cosine
from ability_search.search.query import EVENT, Query
from ability_search.search.stage import scorer
from ability_search.text.bm25 import QueryTerms

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


def phrase_products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """Return the terms of excluded phrases and of the event, by the column for a raw score."""
    phrases = dict(query.excluded_columns)
    if query.event is not None:
        phrases[EVENT] = query.event.phrase
    return {_words_column(column): weigh(phrase) for column, phrase in phrases.items()}


def closeness(
    columns: Collection[str], items: Sequence[Candidate], candidates: Candidates
) -> tuple[Floats, Floats]:
    """Return how close candidates are to phrases; of several phrases the closest counts.

    Args:
        columns: Columns with the cosines to the phrases; at least one.
        items: n candidates, n > 0.
        candidates: All candidates, with the plan.

    Returns:
        Cosines, and shares of the phrase's words that each candidate contains, both in [0, 1],
        shape (n,); 0 where unknown.
    """
    cosines = np.max([_cosines(items, column) for column in columns], axis=0)
    products = candidates.plan.products
    coverage = np.max([_coverage(items, column, products) for column in columns], axis=0)
    return cosines, coverage


def score_exclusions(
    columns: Collection[str], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Lower the scores of candidates by :func:`demoted`.

    Closeness to an excluded phrase is measured by cosines if there are any; without an embedder
    only the words count.
    """
    cosines = normalized_cosine([item.cosine or 0.0 for item in items])
    excluded, coverage = closeness(columns, items, candidates)
    scores = demoted(
        np.array([item.score for item in items]),
        cosines=cosines,
        excluded_cosines=excluded,
        excluded_coverage=coverage,
    )
    closer = np.maximum(0.0, excluded - cosines)
    for place, item in enumerate(items):
        adjust(
            item,
            NAME,
            float(scores[place]),
            closer=float(closer[place]),
            words=float(coverage[place]),
        )


def excluded_columns(query: Query) -> list[str] | None:
    """Return the columns of the excluded phrases, and of a resolved event; ``None`` without any."""
    resolved = query.intent is not None and query.intent.event and query.intent.period
    return [*query.excluded_columns, *([EVENT] if resolved else [])] or None


def _words_column(column: str) -> str:
    """Return the column with the raw score by a phrase's words, next to that with its cosine."""
    return f"{column}Words"


def _cosines(items: Sequence[Candidate], column: str) -> Floats:
    return normalized_cosine([item.columns.get(column) or 0.0 for item in items])


def _coverage(
    items: Sequence[Candidate], column: str, products: Mapping[str, QueryTerms]
) -> Floats:
    terms = products.get(_words_column(column))
    if terms is None or not terms.information > 0:
        return np.zeros(len(items))
    raw = np.array([item.columns.get(_words_column(column)) or 0.0 for item in items])
    return np.minimum(1.0, raw / terms.information)


NAME = "exclusion"
EXCLUSION_PENALTY = scorer(NAME, excluded_columns, score_exclusions)
