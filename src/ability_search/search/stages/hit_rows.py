"""The page of hits: their rows, and what callers see of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ability_search.documents import instant
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.query import Query
from ability_search.search.response import Highlight, Hit
from ability_search.search.stage import Ports, Stage, always
from ability_search.search.stages.context_expansion import CONTEXT_EXPANSION, read_contexts
from ability_search.text.analyzer import analyzer_for
from ability_search.text.highlights import highlights


async def read_rows(items: Sequence[Candidate], ports: Ports) -> None:
    """Read the rows of candidates that have none yet, of one collection or several.

    A chunk that was replaced since it was found gets no row.
    """
    missing: dict[str, dict[str, Candidate]] = {}
    for item in items:
        if item.row is None:
            missing.setdefault(item.collection.type, {})[item.rid] = item
    answers = await asyncio.gather(
        *(ports.store.chunks(generation, list(own)) for generation, own in missing.items())
    )
    for own, rows in zip(missing.values(), answers, strict=True):
        for row in rows:
            own[row.rid].row = row


async def read_page(candidates: Candidates, ports: Ports) -> None:
    """Keep the requested page of hits, with their rows and contexts.

    A chunk that was replaced since it was found is left out.
    """
    page = candidates.ranked[candidates.query.asked.offset : candidates.query.end]

    async def contexts() -> None:
        if CONTEXT_EXPANSION.applies(candidates):
            with candidates.clock.step(CONTEXT_EXPANSION.step):
                await read_contexts(page, candidates, ports)

    await asyncio.gather(read_rows(page, ports), contexts())
    candidates.ranked = [item for item in page if item.row is not None]
    candidates.lost = len(page) - len(candidates.ranked)


async def build_hits(candidates: Candidates, _ports: Ports) -> None:
    """Build the hits of the page; those of several collections name theirs."""
    collection = candidates.query.asked.collection
    named = collection == "*" or not isinstance(collection, str)
    candidates.hits = [hit_of(item, candidates.query, named=named) for item in candidates.ranked]


PAGE_ROWS = Stage("rows", always, read_page, step="rows")
HITS = Stage("rows", always, build_hits, step="rows")


def hit_of(item: Candidate, query: Query, *, named: bool) -> Hit:
    """Return the hit of a candidate whose row was read, with the details the query requests.

    ``named`` adds its collection.
    """
    row = item.row
    assert row is not None
    raw = item.values | item.kinds | {"semantic": item.cosine}
    content = row.content if item.content is None else item.content
    return Hit(
        chunk_id=row.chunk_id,
        collection=item.collection.public_name if named else None,
        source=row.source,
        title=row.title,
        content=content,
        score=item.score,
        metadata=dict(row.metadata),
        chunk_index=row.chunk_index,
        total_chunks=row.total_chunks,
        kind=row.kind,
        breadcrumb=row.breadcrumb or None,
        page=row.page,
        start_line=row.start_line,
        end_line=row.end_line,
        created_at=None if row.created_at is None else instant(row.created_at),
        scores={name: score for name, score in raw.items() if score is not None},
        matched_via=[*item.ranks, *item.kinds],
        highlights=_highlights(item, query, end=len(content)) if query.asked.highlights else None,
        context=item.context,
        merged=[each.chunk_id for each in item.merged] or None,
        truncated=None if item.content is None else True,
        explain=dict(item.trace) if query.asked.explain else None,
    )


def _highlights(item: Candidate, query: Query, *, end: int) -> list[Highlight]:
    """Return the matches in a hit's content before ``end``."""
    content = item.row.content if item.row else ""
    analyzer = analyzer_for(item.collection.language)
    found = highlights(content, analyzer.query_terms(query.topic), analyzer)
    return [
        Highlight(start=mark.start, end=mark.end, text=mark.text)
        for mark in found
        if mark.end <= end
    ]
