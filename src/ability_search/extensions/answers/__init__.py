"""Answers with citations: passages found by search-query, answered from by a language model."""
