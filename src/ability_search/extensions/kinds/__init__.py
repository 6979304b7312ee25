"""Kinds derived from a document: title, summary, keywords, propositions. Pure functions."""
