"""The page of hits: their rows, and what callers see of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection as Values
from collections.abc import Sequence
from typing import Final

from ability_search.collection import Collection
from ability_search.documents import instant
from ability_search.search.candidates import Answer, Candidate
from ability_search.search.options import Expand
from ability_search.search.query import Query
from ability_search.search.response import Highlight, Hit
from ability_search.search.stage import Ports, Stage
from ability_search.search.stages.context_expansion import CONTEXT_EXPANSION, read_contexts
from ability_search.store.pages import read_all
from ability_search.store.records import HIT, ChunkText
from ability_search.store.values import Chunks, Read
from ability_search.text.analyzer import Analyzer, analyzer_for

HIGHLIGHTS_LIMIT: Final = 20


async def read_rows(items: Sequence[Candidate], ports: Ports) -> None:
    """Read the rows of candidates that have none yet, of one collection or several.

    A chunk that was replaced since it was found gets no row.
    """
    missing: dict[Collection, dict[str, Candidate]] = {}
    for item in items:
        if item.row is None:
            missing.setdefault(item.collection, {})[item.handle] = item
    answers = await asyncio.gather(
        *(
            read_all(ports.store, Read(Chunks(handles=[*own]), collection, HIT))
            for collection, own in missing.items()
        )
    )
    for own, rows in zip(missing.values(), answers, strict=True):
        for row in rows:
            own[row["handle"]].row = ChunkText(**row)


async def read_page(answer: Answer, ports: Ports) -> None:
    """Keep the requested page of hits, with their rows and contexts.

    A chunk that was replaced since it was found is left out.
    """
    option, page = answer.query.context, answer.ranked[answer.query.asked.offset : answer.query.end]

    async def contexts(option: Expand) -> None:
        with answer.clock.step(CONTEXT_EXPANSION.step):
            await read_contexts(option, page, answer, ports)

    if option is None:
        await read_rows(page, ports)
    else:
        await asyncio.gather(read_rows(page, ports), contexts(option))
    answer.ranked = [item for item in page if item.row is not None]
    answer.lost = len(page) - len(answer.ranked)


async def build_hits(answer: Answer, _ports: Ports) -> None:
    """Build the hits of the page."""
    query = answer.query
    analyzers = {item.collection.language for item in answer.ranked if query.asked.highlights}
    marked = {name: _marked(query.intent.topic, analyzer_for(name)) for name in analyzers}
    answer.hits = [
        hit_of(item, query, marked.get(item.collection.language)) for item in answer.ranked
    ]


PAGE_ROWS = Stage("rows", read_page, step="rows")
HITS = Stage("rows", build_hits, step="rows", computes=True)


_Marked = tuple[frozenset[str], Analyzer]
"""Terms to highlight, and the analyzer that finds them."""


def _marked(topic: str, analyzer: Analyzer) -> _Marked:
    return frozenset(analyzer.query_terms(topic)), analyzer


def hit_of(item: Candidate, query: Query, marked: _Marked | None) -> Hit:
    """Return the hit of a candidate whose row was read, with the details the query requests."""
    row = item.row
    assert row is not None
    raw = item.values | item.kinds | {"semantic": item.cosine}
    return Hit(
        chunk_id=row.chunk_id,
        collection=item.collection.public_name if query.several else None,
        source=row.source,
        title=row.title,
        content=row.content,
        score=item.score,
        metadata=dict(row.metadata),
        chunk_index=row.chunk_index,
        total_chunks=row.total_chunks,
        kind=row.kind,
        of=row.parent,
        breadcrumb=row.breadcrumb or None,
        page=row.page,
        start_line=row.start_line,
        end_line=row.end_line,
        created_at=None if row.created_at is None else instant(row.created_at),
        scores={name: score for name, score in raw.items() if score is not None},
        matched_via=[*item.ranks, *item.kinds],
        highlights=None if marked is None else _highlights(row.content, *marked),
        context=item.context,
        merged=[each.chunk_id for each in item.merged] or None,
        explain=dict(item.trace) if query.asked.explain else None,
    )


def matches(
    content: str,
    query_terms: Values[str],
    analyzer: Analyzer,
    *,
    limit: int = HIGHLIGHTS_LIMIT,
) -> list[tuple[int, int]]:
    """Return start and end of the parts of ``content`` whose terms are among ``query_terms``.

    Parts that overlap, touch, or are separated by a single space or hyphen are merged.

    Args:
        content: the text as stored; offsets refer to it unchanged.
        query_terms: as ``analyzer.query_terms`` returns them.
        analyzer: the collection's analyzer.
        limit: maximum number of highlights; the first ones are returned.

    Returns:
        Offsets in characters, in order of position; empty if nothing matches.
    """
    merged: list[tuple[int, int]] = []
    for start, end in _spans(content, query_terms, analyzer):
        if merged and _adjoins(content, merged[-1][1], start):
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif len(merged) == limit:
            break
        else:
            merged.append((start, end))
    return merged


def _spans(content: str, query_terms: Values[str], analyzer: Analyzer) -> list[tuple[int, int]]:
    wanted = frozenset(query_terms)
    if not wanted:
        return []
    return [(start, end) for term, start, end in analyzer.spans(content) if term in wanted]


def _adjoins(content: str, end: int, start: int) -> bool:
    return start <= end or (start == end + 1 and (content[end] == "-" or content[end].isspace()))


def _highlights(content: str, terms: Values[str], analyzer: Analyzer) -> list[Highlight]:
    """Return the matches in a hit's content."""
    found = matches(content, terms, analyzer)
    return [Highlight(start=first, end=last, text=content[first:last]) for first, last in found]
