"""What can be said of a document beside its text: title, summary, keywords, propositions. Pure."""

from ability_search.aspects.local import Statement, extracted

__all__ = ["Statement", "extracted"]
