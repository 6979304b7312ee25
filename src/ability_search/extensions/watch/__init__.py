"""Indexing of files as they change."""
