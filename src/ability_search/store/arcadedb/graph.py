"""What is around chunks: their neighbours in the text, over links, and by what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ability_search.store.arcadedb.core import Predicate, Statement, link_type
from ability_search.store.arcadedb.search import Shown

_LINKS = 100
"""Links that are followed from a step on, in each direction, the strongest first."""
_LINKS_READ = 1000
"""Links that are looked at for these."""
_CHUNKS = 2000
"""Chunks that are compared at each step."""
_CHUNKS_OF_SOURCES = 10_000
"""Chunks among which the best of their sources are looked for."""


def context_rows(
    chunk_type: str, chunk_ids: Sequence[str], predicate: Predicate | None
) -> Statement:
    """The texts of these chunks, in any order; those that are not there are left out."""
    return Statement(
        "SELECT @rid AS rid, chunkId, source, content, lead, overlap, chunkIndex, section,"
        f" startLine, endLine FROM `{chunk_type}` WHERE chunkId IN :ids{_also(predicate)}",
        {"ids": list(chunk_ids), **_params(predicate)},
    )


def best_chunks(
    chunk_type: str, sources: Sequence[str], shown: Shown, predicate: Predicate | None, *, by: str
) -> Statement:
    """The best chunk of each source that has one in the indexes; of equal ones the first.

    Args:
        chunk_type: The generation.
        sources: Which, the most wanted first.
        shown: What is wanted of them.
        predicate: Which chunks count at all.
        by: The column of ``shown`` that is greatest in the best chunk.

    Returns one map: ``best``, rows ``rid, chunkId, source`` and what is shown.
    """
    columns = f"@rid AS rid, chunkId, source{shown.text()}"
    # Without max() beside it the engine does not take first() for an aggregate.
    return Statement(
        "LET ranked = SELECT source, first(rid) AS rid, max(best) AS best FROM"
        f" (SELECT source, @rid AS rid, chunkIndex, {shown.value(by)} AS best FROM"
        f" (SELECT FROM `{chunk_type}` WHERE source IN :sources AND duplicateOf IS NULL"
        f"{_also(predicate)} LIMIT {_CHUNKS_OF_SOURCES})"
        " ORDER BY best DESC, chunkIndex) GROUP BY source;"
        f" LET best = SELECT {columns} FROM `{chunk_type}` WHERE @rid IN $ranked.rid;"
        " RETURN {'best': $best};",
        {"sources": list(sources), **shown.params, **_params(predicate)},
    )


def walk(
    chunk_type: str,
    sources: Sequence[str],
    shown: Shown,
    predicate: Predicate | None,
    *,
    hops: int,
    kinds: Sequence[str] | None,
    links: bool,
    beside: Sequence[str],
    by: str,
    least: float,
    limit: int,
) -> Statement:
    """Chunks near to some sources: the best one of each that is linked, and given ones.

    Links are walked both ways, from what the predicate allows.

    Args:
        chunk_type: The generation.
        sources: Where to start; they are not reached again.
        shown: What is wanted of chunks.
        predicate: Which chunks count at all.
        hops: Links in a row.
        kinds: Of links; ``None`` for all.
        links: Whether there are links.
        beside: ChunkIds of further chunks.
        by: The column of ``shown`` with the cosine that counts.
        least: Cosine of a chunk at least.
        limit: Most chunks.

    Returns one map: ``found`` (rows ``rid, chunkId, source`` and what is shown, in any order) and
    for each hop from 1 ``out1`` and ``in1``: links (rows ``source, target, kind, weight``) from and
    to where that hop starts, the strongest first.
    """
    cosine = shown.value(by)
    steps, answer = [], []
    here, near = ":starts", ["beside"]
    unseen = "source NOT IN :starts"
    for hop in range(1, hops + 1) if links else ():
        of_kind = " AND kind IN :kinds" if kinds is not None else ""
        for name, end in ((f"out{hop}", "source"), (f"in{hop}", "target")):
            steps.append(
                f"LET {name} = SELECT source, target, kind, weight FROM (SELECT FROM"
                f" `{link_type(chunk_type)}` WHERE {end} IN {here}{of_kind} LIMIT {_LINKS_READ})"
                f" ORDER BY weight DESC, source, target, kind LIMIT {_LINKS};"
            )
            answer.append(f"'{name}': ${name}")
        steps.append(
            f"LET to{hop} = SELECT set(unionAll($out{hop}.target, $in{hop}.source)) AS sources;"
            f" LET near{hop} = SELECT source, first(rid) AS rid, max(cosine) AS cosine FROM"
            f" (SELECT source, @rid AS rid, {cosine} AS cosine FROM (SELECT FROM `{chunk_type}`"
            f" WHERE source IN $to{hop}[0].sources AND {unseen} AND duplicateOf IS NULL"
            f"{_also(predicate)} LIMIT {_CHUNKS}) ORDER BY cosine DESC) GROUP BY source;"
        )
        near.append(f"near{hop}")
        here = f"$near{hop}.source"
        unseen += f" AND source NOT IN {here}"
    steps.append(
        f"LET beside = SELECT @rid AS rid, {cosine} AS cosine FROM `{chunk_type}`"
        f" WHERE chunkId IN :beside AND duplicateOf IS NULL{_also(predicate)};"
        " LET kept = SELECT rid, cosine FROM (SELECT expand(unionAll("
        f"{', '.join(f'${name}' for name in near)}))) WHERE cosine >= :least"
        f" ORDER BY cosine DESC, rid LIMIT {limit:d};"
        f" LET found = SELECT @rid AS rid, chunkId, source{shown.text()} FROM `{chunk_type}`"
        " WHERE @rid IN $kept.rid;"
    )
    answer.append("'found': $found")
    return Statement(
        f"{' '.join(steps)} RETURN {{{', '.join(answer)}}};",
        {
            "starts": list(sources),
            "beside": list(beside),
            "kinds": list(kinds or ()),
            "least": least,
            **shown.params,
            **_params(predicate),
        },
    )


def _also(predicate: Predicate | None) -> str:
    return "" if predicate is None else f" AND ({predicate.text})"


def _params(predicate: Predicate | None) -> Mapping[str, Any]:
    return {} if predicate is None else predicate.params
