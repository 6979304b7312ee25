"""Phrase match: first candidates gain score for the query's words side by side.

BM25 and cosines ignore word order, which matters for quotations. Pairs of adjacent words are the
ordered windows of the sequential dependence model: Metzler & Croft, A Markov Random Field Model for
Term Dependencies (2005). The texts are those of the hits, which are read anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ability_search.documents import Floats
from ability_search.search.candidates import Candidates, adjust
from ability_search.search.query import Query
from ability_search.search.stage import Ports, Stage
from ability_search.search.stages.hit_rows import read_first, text_of
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import inverse_document_frequency
from ability_search.text.phrase_pairs import WORDS_LIMIT, PhrasePairs, phrase_pairs, words_of
from ability_search.text.term_ids import CONTENT, term_ids
from ability_search.text.term_statistics import TermStatistics


def raised(scores: Floats, shares: Floats, *, weight: float) -> Floats:
    """Raise scores by the share of the query's phrases in each text: ``s + w p^2 (1 - s)``.

    The square favours quotations: some pair of a long question occurs in many texts.

    Args:
        scores: In [0, 1], shape (n,).
        shares: Values of :meth:`.PhrasePairs.share`, ``p``, shape (n,).
        weight: 0 (scores are unchanged) to 1.

    Returns:
        In [0, 1], shape (n,); no score is lowered.
    """
    return np.asarray(scores + weight * shares**2 * (1.0 - scores))


def pairs_of(query: Query, statistics: TermStatistics, *, language: str) -> PhrasePairs | None:
    """Return the word pairs of a query's topic; ``None`` if phrases do not count."""
    if query.asked.fusion is not None:
        return None
    words = words_of(query.intent.topic)[: WORDS_LIMIT + 1]
    return phrase_pairs(words, _informations(words, statistics, language))


async def match_phrases(candidates: Candidates, ports: Ports) -> None:
    """Raise the scores of first candidates that contain word pairs, and read their rows."""
    pairs = candidates.plan.phrases
    assert pairs is not None
    first = await read_first(candidates, ports)
    shares = [pairs.share(text_of(item)) for item in first]
    scores = raised(
        np.array([item.score for item in first]),
        np.array(shares),
        weight=candidates.ranking.phrasing,
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


def _applies(candidates: Candidates) -> bool:
    """Return whether both retrievers were searched, with default fusion."""
    return bool(candidates.blocks) and candidates.plan.phrases is not None and not candidates.failed


NAME = "phrasing"
PHRASE_MATCH = Stage(NAME, match_phrases, _applies, step=NAME)
