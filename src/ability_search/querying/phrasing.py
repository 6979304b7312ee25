"""Phrase match: first candidates gain score for the query's words side by side.

The texts are those of the hits, which are read anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ability_search.ports import Store
from ability_search.querying.adjusting import Context, adjust, best_first
from ability_search.querying.answers import Found
from ability_search.querying.candidates import Pool
from ability_search.querying.feedback import DEPTH
from ability_search.querying.model import Candidate, Query
from ability_search.querying.rows import read_rows
from ability_search.ranking.phrasing import WORDS_LIMIT, Phrasing, phrasing, raised, words_of
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import inverse_document_frequency
from ability_search.text.term_ids import CONTENT, term_ids
from ability_search.text.term_statistics import TermStatistics

NAME = "phrasing"


def phrasing_of(query: Query, statistics: TermStatistics, *, language: str) -> Phrasing | None:
    """Return the word pairs of a query's topic; ``None`` if phrases do not count.

    A query that names an event asks for what happened around it, not for texts that name it.
    """
    if query.event is not None or query.fusion is not None:
        return None
    words = words_of(query.topic)[: WORDS_LIMIT + 1]
    return phrasing(words, _informations(words, statistics, language))


def wanted(pool: Pool, context: Context) -> bool:
    """Return whether phrase match applies: both retrievers searched, default fusion."""
    return context.plan.phrasing is not None and not pool.failed


async def count(store: Store, pool: Pool, block: Sequence[Candidate], context: Context) -> None:
    """Raise the scores of first candidates that contain word pairs, and read their rows.

    Args:
        store: The database.
        pool: The pool they are from.
        block: The candidates of the first depth, scored.
        context: Context of the stages.
    """
    wording = context.plan.phrasing
    assert wording is not None
    first = best_first(block)[:DEPTH]
    await read_rows(store, [Found(pool.collection, item) for item in first])
    shares = [wording.share(_text(item)) for item in first]
    scores = raised(
        np.array([item.score for item in first]),
        np.array(shares),
        weight=context.ranking.phrasing,
    )
    for item, share, score in zip(first, shares, scores.tolist(), strict=True):
        if share > 0:
            adjust(item, NAME, score, share=share)


def _informations(words: Sequence[str], statistics: TermStatistics, language: str) -> list[float]:
    """Return the inverse document frequency of each word's rarest term; 0 without terms."""
    analyzer = analyzer_for(language)
    terms = [analyzer.terms(word) for word in words]
    every = [term for own in terms for term in own]
    frequencies = statistics.document_frequencies(term_ids(CONTENT, every))
    known = iter(inverse_document_frequency(frequencies, statistics.chunks).tolist())
    return [max((next(known) for _ in own), default=0.0) for own in terms]


def _text(item: Candidate) -> str:
    row = item.row or {}
    return f"{row.get('title') or ''}\n{row.get('content') or ''}"
