"""Demotion of candidates about what a query excludes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ability_search.querying.adjusting import Adjustment, Context, adjust
from ability_search.querying.model import Candidate, Query
from ability_search.ranking.exclusion import Floats, demoted
from ability_search.ranking.fusion import normalized_cosine
from ability_search.text.bm25 import QueryTerms

NAME = "exclusion"
EVENT = "event"
"""Column with a candidate's cosine to the event that the query names."""


def phrases(query: Query) -> dict[str, str]:
    """Return the excluded phrases, by the column for a candidate's cosine to them."""
    return {f"excluded{place}": phrase for place, phrase in enumerate(query.excluded)}


def products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """Return the terms of the excluded phrases, by the column for a candidate's raw score."""
    return {words_column(column): weigh(phrase) for column, phrase in phrases(query).items()}


def closeness(candidates: Sequence[Candidate], context: Context) -> tuple[Floats, Floats]:
    """Return how close candidates are to what the query excludes, see :func:`closeness_to`."""
    return closeness_to(_columns(context.query), candidates, context)


def closeness_to(
    columns: Collection[str], candidates: Sequence[Candidate], context: Context
) -> tuple[Floats, Floats]:
    """Return how close candidates are to phrases; of several phrases the closest counts.

    Args:
        columns: Columns with the cosines to the phrases; at least one.
        candidates: n candidates, n > 0.
        context: Context of the query.

    Returns:
        Cosines, and shares of the phrase's words that each candidate contains, both in [0, 1],
        shape (n,); 0 where unknown.
    """
    cosines = np.max([_cosines(candidates, column) for column in columns], axis=0)
    coverage = np.max([_coverage(candidates, column, context) for column in columns], axis=0)
    return cosines, coverage


def push_down(candidates: Sequence[Candidate], context: Context) -> None:
    """Lower the scores of candidates by :func:`ability_search.ranking.exclusion.demoted`.

    Closeness to an excluded phrase is measured by cosines if there are any; without an embedder
    only the words count.
    """
    if not candidates or not _columns(context.query):
        return
    cosines = normalized_cosine([item.cosine or 0.0 for item in candidates])
    excluded, coverage = closeness(candidates, context)
    scores = demoted(
        np.array([item.score for item in candidates]),
        cosines=cosines,
        excluded_cosines=excluded,
        excluded_coverage=coverage,
    )
    closer = np.maximum(0.0, excluded - cosines)
    for place, item in enumerate(candidates):
        adjust(
            item,
            NAME,
            float(scores[place]),
            closer=float(closer[place]),
            words=float(coverage[place]),
        )


EXCLUSION = Adjustment(NAME, lambda query: (), push_down)


def words_column(column: str) -> str:
    """Return the column with the raw score by a phrase's words, next to that with its cosine."""
    return f"{column}Words"


def _columns(query: Query) -> list[str]:
    """Return the columns of the excluded phrases, and of a resolved event."""
    dated = query.intent is not None and query.intent.event and query.intent.period
    return [*phrases(query), *([EVENT] if dated else [])]


def _cosines(candidates: Sequence[Candidate], column: str) -> Floats:
    return normalized_cosine([item.columns.get(column) or 0.0 for item in candidates])


def _coverage(candidates: Sequence[Candidate], column: str, context: Context) -> Floats:
    terms = context.plan.products.get(words_column(column))
    if terms is None or not terms.information > 0:
        return np.zeros(len(candidates))
    raw = np.array([item.columns.get(words_column(column)) or 0.0 for item in candidates])
    return np.minimum(1.0, raw / terms.information)
