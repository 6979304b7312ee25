"""Reads the chunks of documents page by page, so that each page fits into a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from ability_search.bounded_batches import batches
from ability_search.documents import is_kind
from ability_search.errors import TooLarge
from ability_search.store.port import CopyStore
from ability_search.store.records import ChunkRecord, SourceRecord

chunks_of: Callable[[SourceRecord], int] = attrgetter("chunks")
"""Returns the number of chunks of a source."""
_CHUNKS = 256
"""Chunks read at a time."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """Chunks ``first`` to ``end - 1`` of each of ``sources``."""

    sources: tuple[str, ...]
    first: int
    end: int

    def halves(self) -> tuple[_Slice, ...]:
        """Return two halves in order; nothing if it is one chunk."""
        if len(self.sources) > 1:
            middle = len(self.sources) // 2
            parts = self.sources[:middle], self.sources[middle:]
            return tuple(_Slice(part, self.first, self.end) for part in parts)
        if self.end - self.first > 1:
            middle = (self.first + self.end) // 2
            cuts = (self.first, middle), (middle, self.end)
            return tuple(_Slice(self.sources, *cut) for cut in cuts)
        return ()


async def chunk_pages(
    store: CopyStore, generation: str, records: Sequence[SourceRecord]
) -> AsyncIterator[list[ChunkRecord]]:
    """Yield the chunks of some sources, in their order, page by page.

    Raises:
        TooLarge: if a chunk does not fit into one message.
    """
    for kinds, part in _slices(records):
        async for chunks in _read(store, generation, part, kinds=kinds):
            yield chunks


async def _read(
    store: CopyStore, generation: str, part: _Slice, *, kinds: bool
) -> AsyncIterator[list[ChunkRecord]]:
    try:
        chunks = await store.chunk_records(
            generation, part.sources, kinds=kinds, first=part.first, end=part.end
        )
    except TooLarge:
        halves = part.halves()
        if not halves:
            raise
        for half in halves:
            async for each in _read(store, generation, half, kinds=kinds):
                yield each
    else:
        order = {source: place for place, source in enumerate(part.sources)}
        yield sorted(chunks, key=lambda chunk: (order[chunk.source], chunk.chunk_index))


def _slices(records: Iterable[SourceRecord]) -> Iterator[tuple[bool, _Slice]]:
    """Yield slices of bounded size, and whether their sources are derived kinds."""
    for kinds, group in groupby(records, key=lambda record: is_kind(record.kind, record.of)):
        for part in _packed(group):
            yield kinds, part


def _packed(records: Iterable[SourceRecord]) -> Iterator[_Slice]:
    for group in batches(records, chunks_of, most=_CHUNKS, most_bytes=_CHUNKS):
        sources = tuple(record.source for record in group)
        end = max(map(chunks_of, group))
        for first in range(0, end, _CHUNKS):
            yield _Slice(sources, first, min(first + _CHUNKS, end))
