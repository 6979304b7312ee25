"""Types and indexes: what exists before anything is stored."""

from __future__ import annotations

from ability_search.statements.core import Statement, source_type


def schema() -> Statement:
    """Create the base types and their indexes; harmless where they exist."""
    return Statement(
        """
        CREATE DOCUMENT TYPE Collection IF NOT EXISTS;
        CREATE PROPERTY Collection.name IF NOT EXISTS STRING;
        CREATE INDEX IF NOT EXISTS ON Collection (name) UNIQUE;
        CREATE DOCUMENT TYPE TermStatistics IF NOT EXISTS;
        CREATE PROPERTY TermStatistics.type IF NOT EXISTS STRING;
        CREATE PROPERTY TermStatistics.seq IF NOT EXISTS LONG;
        CREATE INDEX IF NOT EXISTS ON TermStatistics (type, seq) NOTUNIQUE;
        CREATE DOCUMENT TYPE Staging IF NOT EXISTS;
        CREATE PROPERTY Staging.token IF NOT EXISTS STRING;
        CREATE INDEX IF NOT EXISTS ON Staging (token) NOTUNIQUE;
        CREATE DOCUMENT TYPE Source IF NOT EXISTS;
        CREATE PROPERTY Source.source IF NOT EXISTS STRING;
        CREATE VERTEX TYPE Chunk IF NOT EXISTS;
        CREATE PROPERTY Chunk.chunkId IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.collection IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.source IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.title IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.content IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.kind IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.tokens IF NOT EXISTS INTEGER;
        CREATE PROPERTY Chunk.metadata IF NOT EXISTS MAP;
        CREATE PROPERTY Chunk.chunkIndex IF NOT EXISTS INTEGER;
        CREATE PROPERTY Chunk.totalChunks IF NOT EXISTS INTEGER;
        CREATE PROPERTY Chunk.createdAt IF NOT EXISTS LONG;
        CREATE PROPERTY Chunk.embedding IF NOT EXISTS ARRAY_OF_FLOATS;
        CREATE PROPERTY Chunk.terms IF NOT EXISTS ARRAY_OF_INTEGERS;
        CREATE PROPERTY Chunk.weights IF NOT EXISTS ARRAY_OF_FLOATS;
        CREATE PROPERTY Chunk.duplicateOf IF NOT EXISTS STRING;
        CREATE PROPERTY Chunk.spareEmbedding IF NOT EXISTS ARRAY_OF_FLOATS;
        CREATE PROPERTY Chunk.spareTerms IF NOT EXISTS ARRAY_OF_INTEGERS;
        CREATE PROPERTY Chunk.spareWeights IF NOT EXISTS ARRAY_OF_FLOATS;
        CREATE PROPERTY Chunk.facets IF NOT EXISTS LIST OF STRING;
        """,
        {},
    )


def create_generation(chunk_type: str, *, dimensions: int) -> Statement:
    """Create the types of one generation; harmless where they exist."""
    sources = source_type(chunk_type)
    return Statement(
        f"""
        CREATE DOCUMENT TYPE `{sources}` IF NOT EXISTS EXTENDS Source BUCKETS 1;
        CREATE INDEX IF NOT EXISTS ON `{sources}` (source) UNIQUE;
        CREATE VERTEX TYPE `{chunk_type}` IF NOT EXISTS EXTENDS Chunk BUCKETS 1;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (chunkId) UNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (source) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (duplicateOf) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (facets BY ITEM) NOTUNIQUE;
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (terms, weights)
            LSM_SPARSE_VECTOR METADATA {{"dimensions": 0}};
        CREATE INDEX IF NOT EXISTS ON `{chunk_type}` (embedding)
            LSM_VECTOR METADATA {{"dimensions": {dimensions:d}, "similarity": "COSINE"}};
        """,
        {},
    )


def drop_generation(chunk_type: str) -> Statement:
    """Drop the types of a generation with all they hold, and its term statistics."""
    return Statement(
        f"""
        DROP TYPE `{source_type(chunk_type)}` IF EXISTS UNSAFE;
        DROP TYPE `{chunk_type}` IF EXISTS UNSAFE;
        BEGIN;
        DELETE FROM TermStatistics WHERE type = :type;
        COMMIT;
        """,
        {"type": chunk_type},
    )
