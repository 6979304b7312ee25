"""Types and indexes: what exists before anything is stored."""

from __future__ import annotations

from ability_search.collection import Collection
from ability_search.store.arcadedb.core import Statement, kind_type, link_type, source_type
from ability_search.store.records import Replacement
from ability_search.store.values import of_generation

RECORD_TYPES = ("Record", "Collection", "Terms")
"""Types of small records."""


def schema() -> Statement:
    """Create the base types and their indexes; harmless if they exist.

    The types of sources and chunks are last. The first collection needs them before anything is
    stored in it, so it completes a creation that was cut off.

    A vector search with a filter is made exact: all embeddings that pass the filter are compared,
    which costs no more than finding them. The graph alone misses some, unless very few pass (by
    default the engine compares up to a fifth of all).
    """
    return Statement(
        f"""
        ALTER DATABASE `arcadedb.vectorIndex.prefilterMaxSelectivity` 1.0;
        {"".join(map(_records, RECORD_TYPES))}
        CREATE INDEX IF NOT EXISTS ON Collection (key) UNIQUE;
        CREATE DOCUMENT TYPE Staging IF NOT EXISTS;
        {_properties("Staging", STRING="token")}
        CREATE INDEX IF NOT EXISTS ON Staging (token) NOTUNIQUE;
        CREATE DOCUMENT TYPE Unindexed IF NOT EXISTS BUCKETS 1;
        {_properties("Unindexed", STRING="type token", LONG="at")}
        CREATE DOCUMENT TYPE Source IF NOT EXISTS;
        {_properties("Source", STRING="source aspectOf", BOOLEAN="generated")}
        CREATE DOCUMENT TYPE Link IF NOT EXISTS;
        {_properties("Link", STRING="source target")}
        CREATE VERTEX TYPE Chunk IF NOT EXISTS;
        {_properties("Chunk", **_OF_CHUNKS)}
        CREATE PROPERTY Chunk.facets IF NOT EXISTS LIST OF STRING;
        """
    )


_OF_CHUNKS = {
    "STRING": "chunkId collection source title content kind duplicateOf vectorKey",
    "INTEGER": "tokens chunkIndex totalChunks page",
    "LONG": "createdAt",
    "MAP": "metadata",
    "ARRAY_OF_FLOATS": "embedding weights spareEmbedding spareWeights",
    "ARRAY_OF_INTEGERS": "terms dates spareTerms",
}
"""Names of properties by type."""


BASE_TYPE = Statement("SELECT type FROM schema:types WHERE name = 'Chunk'")
"""Selects the kind of the base type of all chunks: no row, or one with ``type``."""


def create_generation(chunk_type: str, *, dimensions: int) -> Statement:
    """Create the types of a generation; harmless if they exist."""
    sources = source_type(chunk_type)
    return Statement(
        f"""
        CREATE DOCUMENT TYPE `{sources}` IF NOT EXISTS EXTENDS Source BUCKETS 1;
        CREATE INDEX IF NOT EXISTS ON `{sources}` (source) UNIQUE;
        CREATE VERTEX TYPE `{chunk_type}` IF NOT EXISTS EXTENDS Chunk BUCKETS 1;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (duplicateOf) NOTUNIQUE;
        {_indexed(chunk_type, dimensions)}
        """
    )


def create_parts(
    collection: Collection, replacement: Replacement, *, kinds: bool
) -> Statement | None:
    """Create what links, documents of others and kinds need, unless the generation has it."""
    text, chunk_type = "", collection.type
    if replacement.links and not collection.links:
        links = link_type(chunk_type)
        text = f"""
        CREATE DOCUMENT TYPE `{links}` IF NOT EXISTS EXTENDS Link BUCKETS 1;
        CREATE INDEX IF NOT EXISTS ON `{links}` (source) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{links}` (target) NOTUNIQUE;
        """
    if replacement.nested and not collection.nested:
        text += f"""
        CREATE INDEX IF NOT EXISTS ON `{source_type(chunk_type)}` (aspectOf)
            NOTUNIQUE NULL_STRATEGY SKIP;
        """
    if kinds and not collection.kind_chunks:
        text += f"""
        CREATE VERTEX TYPE `{kind_type(chunk_type)}` IF NOT EXISTS EXTENDS Chunk BUCKETS 1;
        {_indexed(kind_type(chunk_type), collection.dimensions)}
        """
    return Statement(text) if text else None


def drop_generation(chunk_type: str) -> Statement:
    """Drop the types of a generation with their contents, and the records of it."""
    return Statement(
        f"""
        DROP TYPE `{source_type(chunk_type)}` IF EXISTS UNSAFE;
        DROP TYPE `{link_type(chunk_type)}` IF EXISTS UNSAFE;
        DROP TYPE `{kind_type(chunk_type)}` IF EXISTS UNSAFE;
        DROP TYPE `{chunk_type}` IF EXISTS UNSAFE;
        BEGIN;
        {" ".join(f"DELETE FROM {name} WHERE scope = :scope;" for name in RECORD_TYPES)}
        COMMIT;
        """,
        {"scope": of_generation(chunk_type)},
    )


def _records(name: str) -> str:
    """Return the commands that create a type of records."""
    numbers = "revision until createdAt updatedAt"
    return f"""
        CREATE DOCUMENT TYPE {name} IF NOT EXISTS;
        {_properties(name, STRING="kind scope key data", MAP="fields", LONG=numbers)}
        CREATE INDEX IF NOT EXISTS ON {name} (kind, scope, key) UNIQUE;
        CREATE INDEX IF NOT EXISTS ON {name} (scope) NOTUNIQUE;
        """


def _properties(name: str, **by_type: str) -> str:
    """Return the commands that create properties of a type: their names by their own types."""
    return " ".join(
        f"CREATE PROPERTY {name}.{each} IF NOT EXISTS {of};"
        for of, names in by_type.items()
        for each in names.split()
    )


def _indexed(chunk_type: str, dimensions: int) -> str:
    """Return the commands that create the indexes of a type of chunks.

    With weights of 8 bits, the default, the sparse index would read the records of hits to correct
    their scores.
    """
    return f"""
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (chunkId) UNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (source) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (vectorKey) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (facets BY ITEM) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (terms, weights)
            LSM_SPARSE_VECTOR METADATA {{"dimensions": 0, "weightQuantization": "FP32"}};
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (embedding)
            LSM_VECTOR METADATA {{"dimensions": {dimensions:d}, "similarity": "COSINE"}};
        """
