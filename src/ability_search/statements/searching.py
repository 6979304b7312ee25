"""Candidates, hits and neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ability_search.statements.core import Predicate, Statement

HIT_COLUMNS = (
    "chunkId, source, title, content, metadata, kind, chunkIndex, totalChunks,"
    " breadcrumb, startLine, endLine, createdAt"
)

# The comparison refuses to be without one, and asking for the embedding itself reads it twice.
_HAS_EMBEDDING = "duplicateOf IS NULL"


def candidates(
    name: str,
    chunk_type: str,
    *,
    vector: Sequence[float] | None,
    terms: tuple[Sequence[int], Sequence[float]] | None,
    limit: int,
    beam: int,
    exact: bool,
    predicate: Predicate | None = None,
) -> Statement:
    """Both arms in one round trip: identifiers and scores only.

    Args:
        name: The collection.
        chunk_type: The generation to search.
        vector: The query vector; ``None`` leaves the semantic arm out.
        terms: Sorted term ids and their query weights; ``None`` leaves the keyword arm out.
        limit: How many candidates each arm yields at most.
        beam: Width of the beam of the graph search.
        exact: Scan the embeddings instead of asking the graph.
        predicate: Which chunks count at all; applied inside both arms.

    Returns one map: ``collection`` (its record as it is now), ``semantic`` (rows ``rid, chunkId,
    cosine``) and ``keyword`` (rows ``rid, chunkId, bm25`` and, with a vector, ``cosine``).
    """
    steps = ["LET c = SELECT FROM Collection WHERE name = :name;"]
    answer = ["'collection': $c"]
    params: dict[str, Any] = {"name": name, **(predicate.params if predicate else {})}
    allowed = f"SELECT @rid FROM `{chunk_type}` WHERE {predicate.text}" if predicate else None
    if vector is not None:
        params["vector"] = list(vector)
        arm = (
            _scan_arm(chunk_type, limit, predicate)
            if exact
            else _graph_arm(chunk_type, limit, beam, allowed)
        )
        steps.append(f"LET s = {arm};")
        answer.append("'semantic': $s")
    if terms is not None:
        params["ids"], params["weights"] = (list(part) for part in terms)
        steps.append(f"LET k = {_keyword_arm(chunk_type, limit, allowed, vector is not None)};")
        answer.append("'keyword': $k")
    return Statement(f"{' '.join(steps)} RETURN {{{', '.join(answer)}}};", params)


def _graph_arm(chunk_type: str, limit: int, beam: int, allowed: str | None) -> str:
    options = f"efSearch: {max(beam, limit):d}" + (f", filter: ({allowed})" if allowed else "")
    return (
        "SELECT @rid AS rid, chunkId, 1 - distance AS cosine FROM (SELECT expand(vectorNeighbors("
        f"'{chunk_type}[embedding]', :vector, {limit:d}, {{{options}}})))"
    )


def _scan_arm(chunk_type: str, limit: int, predicate: Predicate | None) -> str:
    where = _HAS_EMBEDDING + (f" AND ({predicate.text})" if predicate else "")
    return (
        "SELECT @rid AS rid, chunkId, vectorCosineSimilarity(embedding, :vector) AS cosine"
        f" FROM `{chunk_type}` WHERE {where} ORDER BY cosine DESC LIMIT {limit:d}"
    )


def _keyword_arm(chunk_type: str, limit: int, allowed: str | None, with_cosine: bool) -> str:
    options = f", {{filter: ({allowed})}}" if allowed else ""
    cosine = ", vectorCosineSimilarity(embedding, :vector) AS cosine" if with_cosine else ""
    return (
        f"SELECT @rid AS rid, chunkId, score AS bm25{cosine} FROM (SELECT expand("
        f"`vector.sparseNeighbors`('{chunk_type}[terms,weights]', :ids, :weights, {limit:d}"
        f"{options})))"
    )


def nearest(
    chunk_type: str, vectors: Sequence[Sequence[float]], *, limit: int, beam: int, exact: bool
) -> Statement:
    """The nearest neighbours of each vector, among the chunks that are in the vector index.

    Args:
        chunk_type: The generation to search.
        vectors: What to look for.
        limit: Neighbours of each.
        beam: Width of the beam of the graph search.
        exact: Scan the embeddings instead of asking the graph.

    Returns one map: ``n0``, ``n1``, ... for each vector in turn, rows ``chunkId, source,
    createdAt, cosine``, nearest first.
    """
    columns = "chunkId, source, createdAt"
    steps = []
    for place in range(len(vectors)):
        if exact:
            arm = (
                f"SELECT {columns}, vectorCosineSimilarity(embedding, :v{place}) AS cosine"
                f" FROM `{chunk_type}` WHERE {_HAS_EMBEDDING}"
                f" ORDER BY cosine DESC LIMIT {limit:d}"
            )
        else:
            arm = (
                f"SELECT {columns}, 1 - distance AS cosine FROM (SELECT expand(vectorNeighbors("
                f"'{chunk_type}[embedding]', :v{place}, {limit:d},"
                f" {{efSearch: {max(beam, limit):d}}})))"
            )
        steps.append(f"LET n{place} = {arm};")
    answer = ", ".join(f"'n{place}': $n{place}" for place in range(len(vectors)))
    return Statement(
        f"{' '.join(steps)} RETURN {{{answer}}};",
        {f"v{place}": list(vector) for place, vector in enumerate(vectors)},
    )


def hit_rows(chunk_type: str, rids: Sequence[str]) -> Statement:
    """The chunks with these record ids, in any order; those that are gone are left out."""
    return Statement(
        f"SELECT @rid AS rid, {HIT_COLUMNS} FROM `{chunk_type}` WHERE @rid IN :rids",
        {"rids": list(rids)},
    )


def chunk_embedding(name: str, chunk_type: str, chunk_id: str) -> Statement:
    """One chunk with its embedding, beside the collection's record as it is now."""
    return Statement(
        f"""
        LET c = SELECT FROM Collection WHERE name = :name;
        LET e = SELECT @rid AS rid, {HIT_COLUMNS},
                ifnull(embedding, spareEmbedding) AS embedding FROM `{chunk_type}`
            WHERE chunkId = :chunkId;
        RETURN {{'collection': $c, 'chunk': $e}};
        """,
        {"name": name, "chunkId": chunk_id},
    )


def build_graph(chunk_type: str, vector: Sequence[float]) -> Statement:
    """A search for one neighbour, which makes the engine build the vector graph and wait for it."""
    return Statement(
        f"SELECT chunkId FROM (SELECT expand(vectorNeighbors('{chunk_type}[embedding]', :vector,"
        " 1)))",
        {"vector": list(vector)},
    )
