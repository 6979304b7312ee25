"""The stage that pushes down what a query excludes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ability_search.querying.adjusting import Adjustment, Context, adjust
from ability_search.querying.model import Candidate, Query
from ability_search.ranking.bm25 import QueryTerms
from ability_search.ranking.exclusion import Floats, demoted
from ability_search.ranking.fusion import normalized_cosine

NAME = "exclusion"


def phrases(query: Query) -> dict[str, str]:
    """What is excluded, by the column that holds a candidate's cosine to it."""
    return {f"excluded{place}": phrase for place, phrase in enumerate(query.excluded)}


def products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """The terms of what is excluded, by the column that holds a candidate's raw score by them."""
    return {_words(column): weigh(phrase) for column, phrase in phrases(query).items()}


def closeness(candidates: Sequence[Candidate], context: Context) -> tuple[Floats, Floats]:
    """How close candidates are to what is excluded, of several phrases to the closest.

    Returns:
        Their cosines and the shares of its words that they have, in [0, 1], shape (n,) both; 0
        where neither is known.
    """
    columns = phrases(context.query)
    cosines = np.max([_cosines(candidates, column) for column in columns], axis=0)
    coverage = np.max([_coverage(candidates, column, context) for column in columns], axis=0)
    return cosines, coverage


def push_down(candidates: Sequence[Candidate], context: Context) -> None:
    """Lower the scores of candidates by :func:`ability_search.ranking.exclusion.demoted`.

    What is closer to an excluded phrase is measured by cosines where there are any; without an
    embedder words alone tell.
    """
    if not context.query.excluded or not candidates:
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


def _words(column: str) -> str:
    return f"{column}Words"


def _cosines(candidates: Sequence[Candidate], column: str) -> Floats:
    return normalized_cosine([item.columns.get(column) or 0.0 for item in candidates])


def _coverage(candidates: Sequence[Candidate], column: str, context: Context) -> Floats:
    terms = context.plan.products.get(_words(column))
    if terms is None or not terms.information > 0:
        return np.zeros(len(candidates))
    raw = np.array([item.columns.get(_words(column)) or 0.0 for item in candidates])
    return np.minimum(1.0, raw / terms.information)
