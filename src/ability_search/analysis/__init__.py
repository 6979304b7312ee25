"""Text analysis: text -> terms -> term ids, the same for documents and queries. Pure."""

from ability_search.analysis.analyzer import (
    DEFAULT_LANGUAGE,
    UNSTEMMED,
    Analyzer,
    analyzer_for,
    languages,
)
from ability_search.analysis.terms import (
    CONTENT,
    TITLE,
    TermIds,
    are_of_content,
    metadata_field,
    term_id,
    term_ids,
)

__all__ = [
    "CONTENT",
    "DEFAULT_LANGUAGE",
    "TITLE",
    "UNSTEMMED",
    "Analyzer",
    "TermIds",
    "analyzer_for",
    "are_of_content",
    "languages",
    "metadata_field",
    "term_id",
    "term_ids",
]
