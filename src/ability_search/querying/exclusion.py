"""The stage that pushes down what a query excludes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ability_search.querying.adjusting import Adjustment, Context, adjust
from ability_search.querying.model import Candidate, Query
from ability_search.ranking.bm25 import QueryTerms
from ability_search.ranking.exclusion import Floats, demoted
from ability_search.ranking.fusion import normalized_cosine

NAME = "exclusion"
EVENT = "event"
"""The column that holds a candidate's cosine to the event that a query names."""


def phrases(query: Query) -> dict[str, str]:
    """What is excluded, by the column that holds a candidate's cosine to it."""
    return {f"excluded{place}": phrase for place, phrase in enumerate(query.excluded)}


def products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """The terms of what is excluded, by the column that holds a candidate's raw score by them."""
    return {words_column(column): weigh(phrase) for column, phrase in phrases(query).items()}


def closeness(candidates: Sequence[Candidate], context: Context) -> tuple[Floats, Floats]:
    """How close candidates are to what they should not be about, see :func:`closeness_to`."""
    return closeness_to(_columns(context.query), candidates, context)


def closeness_to(
    columns: Collection[str], candidates: Sequence[Candidate], context: Context
) -> tuple[Floats, Floats]:
    """How close candidates are to phrases, of several to the closest.

    Args:
        columns: Those that hold the cosines to the phrases; at least one.
        candidates: n of them, n > 0.
        context: What the query is.

    Returns:
        Their cosines and the shares of its words that they have, in [0, 1], shape (n,) both; 0
        where neither is known.
    """
    cosines = np.max([_cosines(candidates, column) for column in columns], axis=0)
    coverage = np.max([_coverage(candidates, column, context) for column in columns], axis=0)
    return cosines, coverage


def push_down(candidates: Sequence[Candidate], context: Context) -> None:
    """Lower the scores of candidates by :func:`ability_search.ranking.exclusion.demoted`.

    What is closer to an excluded phrase is measured by cosines where there are any; without an
    embedder words alone tell.
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
    """The column with the raw score by the words of a phrase, beside that with its cosine."""
    return f"{column}Words"


def _columns(query: Query) -> list[str]:
    """What is excluded, and the event beside whose days something is asked for."""
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
