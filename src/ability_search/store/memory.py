"""A store in memory: the reference of the store port, for tests and for try-outs.

Searches are exact. Methods do not wait for anything, so each is atomic for the callers of one
event loop. What is stored and what is returned are copies, or cannot be changed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection
from ability_search.store.memory_read import MemoryReads
from ability_search.store.memory_search import MemorySearch
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    Tables,
)
from ability_search.store.records import ChunkRecord, Replaced, Replacement
from ability_search.store.stand_ins import Represented, moved
from ability_search.store.statistics_cache import TermStatisticsEntry, put_entry
from ability_search.store.stored_collections import change_collection, collection_fields
from ability_search.store.values import Patch, of_generation


class _Generations(Tables):
    """See :class:`ability_search.store.port.Store`."""

    async def create_generation(self, collection: Collection) -> None:
        self._generations.setdefault(collection.type, Generation())

    async def generations(self) -> list[str]:
        return list(self._generations)

    async def drop_generation(self, generation: str) -> None:
        self._generations.pop(generation, None)
        self._clear(of_generation(generation))


class MemoryDocuments(Tables):
    """See :class:`ability_search.store.port.Store`."""

    async def replace(self, collection: Collection, replacement: Replacement) -> Replaced | None:
        record = self._current(collection)
        if record is None:
            return None
        if replacement.chunks and record.average_length != collection.average_length:
            return None
        stored = self._generation(record.type)
        if not _stand_ins_unchanged(stored, replacement.stand_ins):
            return None
        concerned = set(replacement.sources)
        old = [each for name in concerned if (each := stored.sources.pop(name, None))]
        gone = stored.delete_chunks(concerned, kinds=False)
        gone_kinds = stored.delete_chunks(concerned, kinds=True)
        kept_links = [link for link in stored.links if link.source not in concerned]
        gone_links = len(stored.links) - len(kept_links)
        inserted = [chunk for chunks in replacement.chunks for chunk in chunks]
        for source in replacement.records:
            stored.add_source(source)
        for chunk in inserted:
            stored.add_chunk(chunk)
        returned = _renew_stand_ins(stored, gone, concerned)
        stored.links = [*kept_links, *replacement.links]
        sources = [each.record for each in stored.sources.values()]
        left = sum(not chunk.indexed for chunk in gone)
        new = replace(
            record,
            revision=record.revision + 1,
            updated_at=self._now(),
            chunks=sum(source.chunks for source in sources),
            sources=sum(source.counted for source in sources),
            tokens=sum(source.tokens for source in sources),
            tokens_min=min(_known(source.tokens_min for source in sources), default=None),
            tokens_max=max(_known(source.tokens_max for source in sources), default=None),
            duplicates=record.duplicates
            - left
            - returned
            + sum(chunk.duplicate_of is not None for chunk in inserted),
            links=record.links - gone_links + len(replacement.links),
            kind_chunks=record.kind_chunks
            - len(gone_kinds)
            + sum(chunk.of is not None for chunk in inserted),
            nested=record.nested or replacement.nested,
        )
        entry = TermStatisticsEntry(
            revision=new.revision,
            base=False,
            added=replacement.term_statistics,
            removed=[chunk.record.terms for chunk in gone],
            removed_lengths=[chunk.record.lengths for chunk in gone],
        )
        await self.commit(
            [change_collection(record, collection_fields(new)), put_entry(record.type, entry)]
        )
        return Replaced(
            collection=new,
            deleted=sum(each.record.chunks for each in old),
            inserted=len(inserted),
            replaced=sum(each.record.counted for each in old),
        )

    async def patch(self, collection: Collection, patches: Sequence[Patch]) -> None:
        generation = self._generation(collection.type)
        for each in patches:
            chunk = generation.table(kinds=bool(each.layer)).get(each.chunk_id)
            if chunk and all(getattr(chunk.record, name) == v for name, v in each.where.items()):
                chunk.record = replace(chunk.record, **deepcopy(dict(each.fields)))

    async def settle(self, collection: Collection) -> Collection:
        """Mark the graphs as built: there are none, as searches are exact."""
        self._generation(collection.type)
        flags: dict[str, Any] = {
            "graph": collection.graph or collection.chunks >= self._scan_below,
            "kind_graph": collection.kind_graph or collection.kind_chunks >= self._scan_below,
        }
        await self.commit([change_collection(collection, flags)])
        return replace(collection, **flags)


class MemoryStore(_Generations, MemorySearch, MemoryReads, MemoryDocuments):
    """A complete :class:`ability_search.store.port.Store`.

    Args:
        now: The clock of the store, in epoch milliseconds.
        scan_below: Number of chunks from which a generation counts as having a vector graph.
    """


def _stand_ins_unchanged(generation: Generation, stand_ins: Mapping[str, int]) -> bool:
    found = {chunk_id: generation.chunks.get(chunk_id) for chunk_id in stand_ins}
    return all(
        chunk is not None and chunk.indexed and chunk.record.created_at == stand_ins[chunk_id]
        for chunk_id, chunk in found.items()
    )


def _renew_stand_ins(
    generation: Generation, gone: Sequence[StoredChunk], replaced: Container[str]
) -> int:
    """Give the duplicates of chunks that are gone another stand-in; return how many it indexed."""
    new: list[ChunkRecord] = []
    left: dict[str, list[StoredChunk]] = {}
    for chunk in _by_id(generation.chunks.values()):
        if chunk.record.source in replaced:
            new.append(chunk.whole())
        elif chunk.record.duplicate_of:
            left.setdefault(chunk.record.duplicate_of, []).append(chunk)
    groups = [
        Represented(
            before.chunk_id,
            before.vector_key,
            [each.record.chunk_id for each in left[before.chunk_id]],
            generation.sources[left[before.chunk_id][0].record.source].record.dedup_threshold,
            left[before.chunk_id][0].embedding,
        )
        for before in (chunk.record for chunk in gone)
        if before.chunk_id in left
    ]
    next_ones = moved(groups, new)
    for standing, copies in next_ones.items():
        for chunk in (generation.chunks[each] for each in copies):
            other = None if chunk.record.chunk_id == standing else standing
            chunk.record = replace(chunk.record, duplicate_of=other)
    return sum(standing in copies for standing, copies in next_ones.items())


def _known(values: Iterable[int | None]) -> Iterator[int]:
    return (value for value in values if value is not None)


def _by_id(chunks: Iterable[StoredChunk], *, after: str = "") -> list[StoredChunk]:
    found = [chunk for chunk in chunks if chunk.record.chunk_id > after]
    return sorted(found, key=lambda chunk: chunk.record.chunk_id)
