"""Statements for context and graph expansion: chunks near others in the text or over links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ability_search.filters.tree import Filter
from ability_search.store.arcadedb.core import Statement, link_type
from ability_search.store.arcadedb.filter_sql import to_sql
from ability_search.store.arcadedb.search import ColumnSql
from ability_search.store.records import LINKS_PER_HOP, GraphRequest
from ability_search.store.values import Columns

_LINKS_READ = 1000
"""Links to read for those that are followed."""
_CHUNKS = 2000
"""Chunks to compare in each hop."""
_CHUNKS_OF_SOURCES = 10_000
"""Chunks to compare for the best chunks of sources."""


def best_chunks(
    chunk_type: str,
    sources: Sequence[str],
    columns: Columns,
    filter: Filter | None,
    *,
    by: str,
    chunk_ids: Sequence[str],
) -> Statement:
    """Select the best indexed chunk of each source, of equal ones the first, and given chunks.

    Args:
        chunk_type: The generation.
        sources: The sources.
        columns: Columns to return.
        filter: Filter on the chunks.
        by: Column by which chunks are compared; greater is better.
        chunk_ids: Further chunks to select.

    Returns one map: ``best`` and ``given``, rows ``rid, chunkId, source`` and the columns.
    """
    shown = ColumnSql(columns)
    also, params = _also(filter)
    # The engine treats first() as an aggregate only together with max().
    return Statement(
        "LET ranked = SELECT source, first(rid) AS rid, max(best) AS best FROM"
        f" (SELECT source, @rid AS rid, chunkIndex, {shown.value(by)} AS best FROM"
        f" (SELECT FROM `{chunk_type}` WHERE source IN :sources AND duplicateOf IS NULL"
        f"{also} LIMIT {_CHUNKS_OF_SOURCES})"
        " ORDER BY best DESC, chunkIndex) GROUP BY source;"
        f" LET best = SELECT @rid AS rid, chunkId, source{shown.text()} FROM `{chunk_type}`"
        f"{shown.variables} WHERE @rid IN $ranked.rid;"
        f" LET given = SELECT @rid AS rid, chunkId, source{shown.text()} FROM `{chunk_type}`"
        f"{shown.variables} WHERE chunkId IN :ids AND duplicateOf IS NULL{also};"
        " RETURN {'best': $best, 'given': $given};",
        {"sources": list(sources), "ids": list(chunk_ids), **shown.params, **params},
    )


def walk(chunk_type: str, request: GraphRequest) -> Statement:
    """Select chunks near some sources: the best one of each linked source, and given chunks.

    Links are followed in both directions, from chunks that match the filter.

    Returns one map: ``found`` (rows ``rid, chunkId, source`` and the columns, in any order) and
    for each hop from 1 ``out1`` and ``in1``: links (rows ``source, target, kind, weight``) from and
    to the sources where that hop starts, the strongest first.
    """
    shown = ColumnSql(request.columns)
    cosine = shown.value(request.by)
    also, params = _also(request.filter)
    steps, answer = [], []
    here, near = ":starts", ["beside"]
    unseen = "source NOT IN :starts"
    for hop in range(1, request.hops + 1) if request.links else ():
        of_kind = " AND kind IN :kinds" if request.kinds is not None else ""
        for name, end in ((f"out{hop}", "source"), (f"in{hop}", "target")):
            steps.append(
                f"LET {name} = SELECT source, target, kind, weight FROM (SELECT FROM"
                f" `{link_type(chunk_type)}` WHERE {end} IN {here}{of_kind} LIMIT {_LINKS_READ})"
                f" ORDER BY weight DESC, source, target, kind LIMIT {LINKS_PER_HOP};"
            )
            answer.append(f"'{name}': ${name}")
        steps.append(
            f"LET to{hop} = SELECT set(unionAll($out{hop}.target, $in{hop}.source)) AS sources;"
            f" LET near{hop} = SELECT source, first(rid) AS rid, max(cosine) AS cosine FROM"
            f" (SELECT source, @rid AS rid, {cosine} AS cosine FROM (SELECT FROM `{chunk_type}`"
            f" WHERE source IN $to{hop}[0].sources AND {unseen} AND duplicateOf IS NULL"
            f"{also} LIMIT {_CHUNKS}) ORDER BY cosine DESC) GROUP BY source;"
        )
        near.append(f"near{hop}")
        here = f"$near{hop}.source"
        unseen += f" AND source NOT IN {here}"
    steps.append(
        f"LET beside = SELECT @rid AS rid, {cosine} AS cosine FROM `{chunk_type}`"
        f" WHERE chunkId IN :beside AND duplicateOf IS NULL{also};"
        " LET kept = SELECT rid, cosine FROM (SELECT expand(unionAll("
        f"{', '.join(f'${name}' for name in near)}))) WHERE cosine >= :least"
        f" ORDER BY cosine DESC, rid LIMIT {request.limit:d};"
        f" LET found = SELECT @rid AS rid, chunkId, source{shown.text()} FROM `{chunk_type}`"
        f"{shown.variables} WHERE @rid IN $kept.rid;"
    )
    answer.append("'found': $found")
    return Statement(
        f"{' '.join(steps)} RETURN {{{', '.join(answer)}}};",
        {
            "starts": list(request.sources),
            "beside": list(request.neighbours),
            "kinds": list(request.kinds or ()),
            "least": request.least,
            **shown.params,
            **params,
        },
    )


def _also(filter: Filter | None) -> tuple[str, Mapping[str, Any]]:
    """Return the additional condition of a filter, and its parameters."""
    if filter is None:
        return "", {}
    text, params = to_sql(filter)
    return f" AND ({text})", params
