"""The page of hits: their rows, and what callers see of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection as Values
from collections.abc import Sequence
from typing import Final

from ability_search.collection import Collection
from ability_search.documents import instant
from ability_search.search.candidates import Answer, Candidate
from ability_search.search.query import Query
from ability_search.search.response import Highlight, Hit, QueryResult
from ability_search.search.retrievers import explained_retrieval
from ability_search.search.stage import Ports
from ability_search.store.pages import read_chunks
from ability_search.store.records import HIT, ChunkText
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
    if not missing:  # as usual, since they are read with the search
        return
    answers = await asyncio.gather(
        *(read_chunks(ports.store, own, collection, HIT) for collection, own in missing.items())
    )
    for own, rows in zip(missing.values(), answers, strict=True):
        for handle, row in rows.items():
            own[handle].row = ChunkText(**row)


def build_hits(answer: Answer) -> None:
    """Build the hits of the page; a chunk that was replaced since it was found is left out."""
    query = answer.query
    page = [item for item in answer.page if item.row is not None]
    analyzers = {item.collection.language for item in page if query.asked.highlights}
    marked: dict[str, _Marked] = {}
    for name in analyzers:
        analyzer = analyzer_for(name)
        marked[name] = frozenset(analyzer.query_terms(query.topic)), analyzer
    answer.hits = [hit_of(item, query, marked.get(item.collection.language)) for item in page]


_Marked = tuple[frozenset[str], Analyzer]
"""Terms to highlight, and the analyzer that finds them."""


def hit_of(item: Candidate, query: Query, marked: _Marked | None) -> Hit:
    """Return the hit of a candidate whose row was read, with the details the query requests."""
    row = item.row
    assert row is not None
    raw = item.values | item.kinds | {"semantic": item.cosine}
    return Hit.made(
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
        scores={name: float(score) for name, score in raw.items() if score is not None},
        matched_via=[*item.ranks, *item.kinds],
        highlights=marked
        and [
            Highlight(start=first, end=last, text=row.content[first:last])
            for first, last in matches(row.content, *marked)
        ],
        context=item.context,
        merged=[each.chunk_id for each in item.merged] or None,
        truncated=None,
        explain=dict(item.trace) if query.asked.explain else None,
    )


def matches(
    content: str, query_terms: Values[str], analyzer: Analyzer, *, limit: int = HIGHLIGHTS_LIMIT
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
    wanted = frozenset(query_terms)
    for start, end in [span[1:] for span in analyzer.spans(content) if span[0] in wanted]:
        between = content[merged[-1][1] : start] if merged else ""
        if merged and (not between or between == "-" or len(between) == 1 and between.isspace()):
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif len(merged) == limit:
            break
        else:
            merged.append((start, end))
    return merged


def result_of(answer: Answer) -> QueryResult:
    """Return the answer to a query as callers see it."""
    query, asked = answer.query, answer.query.asked
    lists = list(answer.searched.values())
    single = None if query.several else lists[0]
    explained = {
        name: {**query.explained, **explained_retrieval(own)}
        for name, own in (answer.searched.items() if asked.explain else ())
    }
    degraded = {own.collection.public_name: own.degraded for own in lists if own.degraded}
    first = next(iter(degraded.values()), None)
    if first is not None and query.several:
        first = first.model_copy(update={"collections": list(degraded)})
    hyde = asked.hypothetical_answer is not None and any(own.mode != "keyword" for own in lists)
    return QueryResult.made(
        results=answer.hits,
        count=len(answer.hits),
        query=asked.query,
        collection=asked.collection,
        mode=asked.mode,
        model=single.collection.model if single else None,
        hyde=True if hyde else None,
        relevance=answer.relevance,
        understood=query.understood,
        degraded=first,
        budget=None,
        warnings=answer.warnings or None,
        timings=answer.clock.finished(),
        explain=(next(iter(explained.values())) if single else explained) if explained else None,
    )
