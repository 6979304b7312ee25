"""Demotion of candidates about what a query excludes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np

from ability_search.documents import Floats
from ability_search.search.candidates import Candidate, Candidates, adjust
from ability_search.search.fusion import nearness
from ability_search.search.query import Query
from ability_search.search.stage import Ports, Stage, scorer
from ability_search.search.stages.hit_rows import read_first, text_of
from ability_search.search.stages.pseudo_relevance import feedback_weights
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import QueryTerms
from ability_search.understanding.negation import denied_share

MEANING_WEIGHT: Final = 1.0
WORDS_WEIGHT: Final = 0.5
EVIDENCE_WEIGHT: Final = 0.1


def excess(scores: Floats, *, cosines: Floats, excluded_cosines: Floats) -> Floats:
    """Return how much closer candidates are to an excluded phrase than expected, >= 0.

    ``max(0, e - (q + m) / 2)`` with the cosines ``e`` to the phrase and ``q`` to the query, and
    ``m`` the mean of ``e`` over the candidates, weighted by relevance. What is excluded is often of
    the same kind as what is asked for (novels, but no fantasy), so that all good candidates are
    close to it.

    Args:
        scores: Scores of n candidates, n > 0; see :func:`.feedback.feedback_weights`.
        cosines: ``q``, in [0, 1], shape (n,).
        excluded_cosines: ``e``, in [0, 1], shape (n,).
    """
    mean = feedback_weights(scores) @ excluded_cosines
    return np.asarray(np.maximum(0.0, excluded_cosines - (cosines + mean) / 2))


def demoted(
    scores: Floats,
    *,
    closer: Floats,
    coverage: Floats,
    denied: Floats,
    meaning: float = MEANING_WEIGHT,
    words: float = WORDS_WEIGHT,
    evidence: float = EVIDENCE_WEIGHT,
) -> Floats:
    """Lower the scores of n candidates that are about one of k excluded phrases; none below 0.

    ``s - meaning (1 - d) x - words ((1 - d) c)^2 + evidence d c (1 - s)``, in each term with the
    phrase that has the greatest effect. The square is for phrases of several words: a text with
    half of them is mostly about something else. A text that denies the phrase (``lasagne without
    meat``) is what the query asks for.

    Args:
        scores: ``s``, in [0, 1], shape (n,).
        closer: ``x``, see :func:`excess`, shape (k, n), as the other arrays.
        coverage: ``c``: BM25 of the phrase divided by its information, at most 1.
        denied: ``d``: share of the phrase's words in the text that occur under negation only.
        meaning: Weight of the cosines.
        words: Weight of the coverage.
        evidence: Weight of the denial.
    """
    affirmed = 1.0 - denied
    lowered = (
        scores
        - meaning * np.max(affirmed * closer, axis=0)
        - words * np.max(affirmed * coverage, axis=0) ** 2
        + evidence * np.max(denied * coverage, axis=0) * (1.0 - scores)
    )
    return np.asarray(np.maximum(0.0, lowered))


def phrase_products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """Return the terms of excluded phrases, by the column for a candidate's raw score."""
    phrases = query.excluded_columns.items()
    return {_words_column(column): weigh(phrase) for column, phrase in phrases}


async def read_texts(candidates: Candidates, ports: Ports) -> None:
    """Read the rows of the first candidates: their texts may deny what is excluded."""
    await read_first(candidates, ports)


def score_exclusions(
    columns: Collection[str], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Lower the scores of candidates by :func:`demoted`.

    Without an embedder only the words count. A candidate whose text was not read denies nothing.
    """
    scores = np.array([item.score for item in items])
    cosines = nearness([item.cosine or 0.0 for item in items], candidates.collection)
    closer = np.array(
        [
            excess(scores, cosines=cosines, excluded_cosines=_cosines(items, column, candidates))
            for column in columns
        ]
    )
    coverage = np.array([_coverage(items, column, candidates) for column in columns])
    denied = _denied(items, columns, candidates)
    lowered = demoted(scores, closer=closer, coverage=coverage, denied=denied)
    for place, item in enumerate(items):
        adjust(
            item,
            NAME,
            float(lowered[place]),
            closer=float(closer[:, place].max()),
            words=float(coverage[:, place].max()),
            denied=float(denied[:, place].max()),
        )


def excluded_columns(query: Query) -> list[str] | None:
    """Return the columns of the excluded phrases; ``None`` without any."""
    return list(query.excluded_columns) or None


def _words_column(column: str) -> str:
    """Return the column with the raw score by a phrase's words, next to that with its cosine."""
    return f"{column}Words"


def _cosines(items: Sequence[Candidate], column: str, candidates: Candidates) -> Floats:
    cosines = [item.columns.get(column) or 0.0 for item in items]
    return nearness(cosines, candidates.collection)


def _coverage(items: Sequence[Candidate], column: str, candidates: Candidates) -> Floats:
    terms = candidates.plan.products.get(_words_column(column))
    if terms is None or not terms.information > 0:
        return np.zeros(len(items))
    raw = np.array([item.columns.get(_words_column(column)) or 0.0 for item in items])
    return np.minimum(1.0, raw / terms.information)


def _denied(items: Sequence[Candidate], columns: Collection[str], candidates: Candidates) -> Floats:
    """Return the denied share of each column's phrase in each text, shape (k, n)."""
    analyzer = analyzer_for(candidates.collection.language)
    phrases = candidates.query.excluded_columns
    terms = [frozenset(analyzer.query_terms(phrases[column])) for column in columns]
    denied = np.zeros((len(terms), len(items)))
    for place, text in enumerate(map(text_of, items)):
        spans = list(analyzer.spans(text))
        denied[:, place] = [
            denied_share(text, (span for span in spans if span[0] in own)) for own in terms
        ]
    return denied


NAME = "exclusion"
EXCLUDED_TEXTS = Stage(
    NAME,
    read_texts,
    lambda candidates: bool(candidates.query.intent.excluded and candidates.blocks),
    step=NAME,
)
EXCLUSION_PENALTY = scorer(NAME, excluded_columns, score_exclusions)
