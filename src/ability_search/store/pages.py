"""Reads of whole selections, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from ability_search.bounded_batches import batches
from ability_search.collection import Collection
from ability_search.documents import is_kind
from ability_search.store.port import ReadStore
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.store.values import KINDS_LAYER, Chunks, Count, Counted, Page, Read

chunks_of: Callable[[SourceRecord], int] = attrgetter("chunks")
"""Returns the number of chunks of a source."""
_CHUNKS = 256
"""Chunks read at a time."""


async def read_page(store: ReadStore, ask: Read) -> Page:
    """Read one page."""
    (page,) = await store.read([ask])
    assert isinstance(page, Page)
    return page


async def read_pages(store: ReadStore, ask: Read) -> AsyncIterator[Sequence[Any]]:
    """Yield a selection in pages of at most :attr:`.Read.limit` items."""
    while True:
        page = await read_page(store, ask)
        if page.items:
            yield page.items
        if page.next is None:
            return
        # A page that was cut off tells how much fits into a message.
        ask = replace(ask, after=page.next, limit=len(page.items))


async def read_all(store: ReadStore, ask: Read) -> list[Any]:
    """Read a whole selection."""
    return [item async for items in read_pages(store, ask) for item in items]


async def count(store: ReadStore, *asks: Count) -> list[Counted]:
    """Count in one round trip."""
    return [answer for answer in await store.read(asks) if isinstance(answer, Counted)]


async def chunk_pages(
    store: ReadStore, collection: Collection, records: Iterable[SourceRecord]
) -> AsyncIterator[list[ChunkRecord]]:
    """Yield the whole chunks of some sources, in their order, page by page.

    Raises:
        TooLarge: if a chunk does not fit into one message.
    """
    for kinds, alike in groupby(records, key=lambda record: is_kind(record.kind, record.of)):
        for group in batches(alike, chunks_of, most=_CHUNKS, most_bytes=_CHUNKS):
            places = {record.source: place for place, record in enumerate(group)}
            for first in range(0, max(map(chunks_of, group)), _CHUNKS):
                layer = KINDS_LAYER if kinds else ""
                of = Chunks(layer, sources=list(places), first=first, end=first + _CHUNKS)
                chunks: list[ChunkRecord] = await read_all(store, Read(of, collection))
                yield sorted(chunks, key=lambda each: (places[each.source], each.chunk_index))
