"""The option ``fullText``: full-text search over chosen fields, blended into the score.

It is a separate retriever, so that it finds what the others do not. Every candidate gets its exact
full-text score, whichever retriever found it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.errors import InvalidInput
from ability_search.search.candidates import Candidate, Candidates, blend
from ability_search.search.options import FullText
from ability_search.search.plan import FULL_TEXT
from ability_search.search.query import Query
from ability_search.search.stage import scorer
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import QueryTerms, terms_in_fields
from ability_search.text.term_statistics import TermStatistics


def full_text_terms(
    query: Query, statistics: TermStatistics | None, *, language: str
) -> QueryTerms | None:
    """Return the terms of the topic in the fields that the query chose, with equal weights.

    Args:
        query: The query.
        statistics: Term statistics of the collection.
        language: Language of the collection.

    Returns:
        ``None`` if the query does not use full-text search.

    Raises:
        InvalidInput: if the query sets another language than the collection's.
    """
    option = query.full_text
    if option is None or statistics is None:
        return None
    analyzer = analyzer_for(language)
    if option.language and option.language.strip().lower() != analyzer.language:
        raise InvalidInput(
            "fullText.language",
            f"the collection is analyzed as {language!r}",
            hint="Omit language, or use search-reindex to change the collection's.",
        )
    terms = analyzer.query_terms(query.intent.topic)
    return terms_in_fields(terms, statistics, dict.fromkeys(query.text_fields, 1.0))


def score_full_text(option: FullText, items: Sequence[Candidate], candidates: Candidates) -> None:
    """Make the normalized full-text score a share of the score."""
    terms = candidates.plan.products[FULL_TEXT]
    raw = [item.values.get(FULL_TEXT) or item.columns.get(FULL_TEXT) or 0.0 for item in items]
    for item, score, value in zip(items, raw, terms.normalized(raw).tolist(), strict=True):
        if score > 0:
            item.values[FULL_TEXT] = score
        blend(item, FULL_TEXT, value, option.weight, bm25=score, normalized=value)


FULL_TEXT_SCORES = scorer(FULL_TEXT, lambda query: query.full_text, score_full_text)
