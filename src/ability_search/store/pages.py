"""Reads of whole selections, page by page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from ability_search.bounded_batches import batches
from ability_search.collection import Collection
from ability_search.documents import is_kind
from ability_search.filters.tree import And, Compare, Field, Not, OneOf
from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.store.values import (
    KINDS_LAYER,
    Chunks,
    Columns,
    Count,
    Counted,
    Page,
    Read,
    Sources,
)

GENERATED: Final = OneOf(Field("generated"), (True,))
"""Filter on sources: kinds that were derived from others."""
COUNTED: Final = And((Not(GENERATED), Compare(Field("chunks"), ">", 0)))
"""Filter on sources: :attr:`.SourceRecord.counted`."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """A chunk's part of the text of its document."""

    chunk_id: str
    source: str
    content: str
    lead: str
    overlap: int
    chunk_index: int
    created_at: int | None


TEXT: Final = Columns(tuple(each.name for each in fields(StoredText)))
"""The columns of a :class:`StoredText`."""
NAMES: Final = Columns(("source",))
HASHES: Final = Columns(("source", "content_hash"))
chunks_of: Callable[[SourceRecord], int] = attrgetter("chunks")
"""Returns the number of chunks of a source."""
_CHUNKS = 256
"""Chunks read at a time."""


async def read_together(store: Store, *asks: Read) -> list[Page]:
    """Read a page of each ask in one round trip."""
    return [answer for answer in await store.read(asks) if isinstance(answer, Page)]


async def read_page(store: Store, ask: Read) -> Page:
    """Read one page."""
    (page,) = await read_together(store, ask)
    return page


async def read_pages(store: Store, ask: Read) -> AsyncIterator[Page]:
    """Yield a selection in pages of at most :attr:`.Read.limit` items, at least one page."""
    while True:
        page = await read_page(store, ask)
        yield page
        if page.next is None:
            return
        # A page that was cut off tells how much fits into a message.
        ask = replace(ask, after=page.next, limit=len(page.items))


async def read_whole(store: Store, ask: Read) -> Page:
    """Read a whole selection as one page."""
    pages = [page async for page in read_pages(store, ask)]
    return replace(pages[-1], items=[item for page in pages for item in page.items])


async def read_all(store: Store, ask: Read) -> list[Any]:
    """Read the items of a whole selection."""
    return list((await read_whole(store, ask)).items)


async def count(store: Store, *asks: Count) -> list[Counted]:
    """Count in one round trip."""
    return [answer for answer in await store.read(asks) if isinstance(answer, Counted)]


async def source_names(store: Store, collection: Collection, of: Sources) -> list[str]:
    """Read the names of some sources, in order."""
    return [row["source"] for row in await read_all(store, Read(of, collection, NAMES))]


async def chunk_pages(
    store: Store, collection: Collection, records: Iterable[SourceRecord]
) -> AsyncIterator[list[ChunkRecord]]:
    """Yield the whole chunks of some sources, in their order, page by page.

    Raises:
        TooLarge: if a chunk does not fit into one message.
    """
    async for items, places in _sliced(store, collection, records, None):
        yield sorted(items, key=lambda each: (places[each.source], each.chunk_index))


async def source_texts(
    store: Store, collection: Collection, records: Iterable[SourceRecord]
) -> Mapping[str, Sequence[StoredText]]:
    """Read the texts of some sources: their chunks in order, by source.

    Raises:
        TooLarge: if a chunk does not fit into one message.
    """
    found: defaultdict[str, list[StoredText]] = defaultdict(list)
    async for rows, _ in _sliced(store, collection, records, TEXT):
        texts = [StoredText(**row) for row in rows]
        for each in sorted(texts, key=lambda text: text.chunk_index):
            found[each.source].append(each)
    return found


async def _sliced(
    store: Store, collection: Collection, records: Iterable[SourceRecord], columns: Columns | None
) -> AsyncIterator[tuple[list[Any], Mapping[str, int]]]:
    """Yield the chunks of slices of some sources, with the places of the sources."""
    for kinds, alike in groupby(records, key=lambda record: is_kind(record.kind, record.of)):
        for group in batches(alike, chunks_of, most=_CHUNKS, most_bytes=_CHUNKS):
            places = {record.source: place for place, record in enumerate(group)}
            for first in range(0, max(map(chunks_of, group)), _CHUNKS):
                layer = KINDS_LAYER if kinds else ""
                of = Chunks(layer, sources=[*places], first=first, end=first + _CHUNKS)
                # One more than there are, so that the first page is the last one.
                limit = 1 + min(_CHUNKS, sum(map(chunks_of, group)))
                yield await read_all(store, Read(of, collection, columns, limit)), places


async def read_chunks(
    store: Store, handles: Iterable[str], collection: Collection, columns: Columns
) -> dict[str, Any]:
    """Read rows of chunks by handle, which is a column; a chunk that was replaced has none."""
    if not (of := Chunks(handles=[*handles])).handles:
        return {}
    rows = await read_all(store, Read(of, collection, columns))
    return {row["handle"]: row for row in rows}
