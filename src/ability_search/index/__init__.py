"""Indexing of documents."""
