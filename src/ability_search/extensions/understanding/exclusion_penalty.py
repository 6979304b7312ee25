"""Demotion of candidates about what a query excludes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np

from ability_search.documents import Floats
from ability_search.search.candidates import Candidate, Candidates, scale
from ability_search.search.fusion import nearness
from ability_search.search.query import Query
from ability_search.search.stage import scorer
from ability_search.text.bm25 import QueryTerms

NAME: Final = "exclusion"
SHARE: Final = 0.3
"""Share of its score that a candidate loses if it is about an excluded phrase only."""


def phrase_products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """Return the terms of excluded phrases, by the column for a candidate's raw score."""
    phrases = query.excluded_columns.items()
    return {_words_column(column): weigh(phrase) for column, phrase in phrases}


def score_exclusions(
    columns: Collection[str], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Scale scores by ``1 - SHARE (e + c) / 2``, with the phrase that has the greatest effect.

    ``e``, in [0, 1], is how close a candidate is to the phrase, and ``c`` the BM25 of the phrase's
    words divided by their information, at most 1. One that is unknown, without an embedder or
    without words that tell something, leaves the other to count alone.
    """
    about = np.array(
        [
            (_cosines(items, column, candidates), _coverage(items, column, candidates))
            for column in columns
        ]
    )
    known = ~np.isnan(about)
    about = np.where(known, about, 0.0)
    evidence = (about.sum(axis=1) / np.maximum(known.sum(axis=1), 1)).max(axis=0)
    closer, words = about.max(axis=0)
    for place, item in enumerate(items):
        detail = {"closer": float(closer[place]), "words": float(words[place])}
        scale(item, NAME, 1 - SHARE * float(evidence[place]), **detail)


def _words_column(column: str) -> str:
    """Return the column with the raw score by a phrase's words, next to that with its cosine."""
    return f"{column}Words"


def _cosines(items: Sequence[Candidate], column: str, candidates: Candidates) -> Floats:
    found = [item.columns.get(column) for item in items]
    near = nearness([cosine or 0.0 for cosine in found], candidates.collection)
    return np.where([cosine is None for cosine in found], np.nan, near)


def _coverage(items: Sequence[Candidate], column: str, candidates: Candidates) -> Floats:
    terms = candidates.plan.products.get(_words_column(column))
    if terms is None or not terms.information > 0:
        return np.full(len(items), np.nan)
    raw = np.array([item.columns.get(_words_column(column)) or 0.0 for item in items])
    return np.minimum(1.0, raw / terms.information)


EXCLUSION_PENALTY = scorer(
    NAME, lambda query: list(query.excluded_columns) or None, score_exclusions
)
