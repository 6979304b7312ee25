"""Links that a consolidation adds to notes, and the notes that they set aside.

Each added link has the time at which it was added, so that it can be taken back. A note with the
added link ``duplicate_of`` is stored, but its chunks are out of the indexes, like those that
deduplication leaves out (:mod:`ability_search.index.deduplication`); if the note that represents it
is replaced or deleted, one of the notes that it represented returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection as Values
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ability_search.bounded_batches import batches
from ability_search.collection import Collection
from ability_search.errors import Busy
from ability_search.filters.tree import Not
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import links_of, restored_document
from ability_search.store.pages import GENERATED, chunk_pages, chunks_of, read_all
from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, Replacement, SourceRecord, source_of
from ability_search.store.registry import Registry
from ability_search.store.values import Read, Sources
from ability_search.text.term_statistics import TermStatistics

DUPLICATE_OF: Final = "duplicate_of"
APPLIED_AT: Final = "appliedAt"
"""Field of an added link: when it was added, in epoch milliseconds."""
_PAGE = 500
"""Source records read at a time."""
_GROUP = 50
"""Chunks written in one transaction, unless a note has more."""

Links = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LinkedNote:
    """A note to which a consolidation added links, or is to add some.

    Attributes:
        links: All its links.
        kept: Source of the note that represents it; ``None`` if it is in the indexes.
    """

    links: Links
    kept: str | None = None


class NoteLinks:
    """Reads and writes the links of notes.

    Args:
        store: The store of the collections.
        registry: Learns the records of changed collections.
    """

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def read(
        self, collection: Collection, records: Sequence[SourceRecord]
    ) -> dict[str, LinkedNote]:
        """Return the notes among some sources to which links were added, by source."""
        linked = [each for each in records if any(APPLIED_AT in link for link in each.links)]
        marked = [each for each in linked if kept_by(each.links)]
        behind: defaultdict[str, set[str | None]] = defaultdict(set)
        async for chunks in chunk_pages(self._store, collection, marked):
            for each in chunks:
                behind[each.source].add(each.duplicate_of and source_of(each.duplicate_of))
        return {
            each.source: LinkedNote(
                tuple(each.links), _represented_by(kept_by(each.links), behind[each.source])
            )
            for each in linked
        }

    async def copy(self, collection: Collection, built: Collection) -> None:
        """Give the notes of a generation the added links that they have in another one.

        Args:
            collection: The generation whose links are copied.
            built: A generation with the same documents.

        Raises:
            Busy: if others change the same notes meanwhile.
        """
        if not collection.links and not built.links:
            return
        records = await read_sources(self._store, built)
        own = await self.read(built, records)
        wanted = await self.read(collection, await read_sources(self._store, collection))
        taken_back = {
            source: LinkedNote(tuple(link for link in note.links if APPLIED_AT not in link))
            for source, note in own.items()
        }
        known = {each.source for each in records}
        changes = {
            source: note
            for source, note in (taken_back | wanted).items()
            if source in known and own.get(source) != note
        }
        await self.write(built, records, own, changes)

    async def write(
        self,
        collection: Collection,
        records: Sequence[SourceRecord],
        before: Mapping[str, LinkedNote],
        changes: Mapping[str, LinkedNote],
    ) -> int:
        """Change notes; return the number of those that were still as they were read.

        Args:
            collection: Their collection.
            records: The records of all its sources.
            before: What :meth:`read` returned for these.
            changes: The notes to change.

        Raises:
            Busy: if others change the same notes meanwhile. A second call completes the rest.
        """
        links = {each.source: each.links for each in records}
        links |= {source: note.links for source, note in changes.items()}
        kept = {source: note.kept for source, note in {**before, **changes}.items()}
        first = [source for source in changes if kept[source] is None]
        then = [source for source in changes if kept[source] is not None]
        known = {each.source: each for each in records}
        written = 0
        for part in (first, then):
            notes = [known[source] for source in part]
            for group in batches(notes, chunks_of, most=_GROUP, most_bytes=_GROUP):
                done = await self._write_group(collection, group, links, kept, before)
                written += len(done & changes.keys())
        return written

    async def _write_group(
        self,
        collection: Collection,
        group: Sequence[SourceRecord],
        links: Mapping[str, Sequence[Mapping[str, Any]]],
        kept: Mapping[str, str | None],
        before: Mapping[str, LinkedNote],
    ) -> set[str]:
        """Write notes in one transaction; return those that were still as they were read."""
        stored, own = await self._notes(collection, [each.source for each in group])
        hashes = {each.source: each.content_hash for each in group}
        records = {
            source: replace(each, links=links[source])
            for source, each in stored.items()
            if each.content_hash == hashes[source] and len(own[source]) == each.chunks
        }
        if not records:
            return set()
        others = {source_of(e.duplicate_of) for s in records for e in own[s] if e.duplicate_of}
        others |= {target for source in records if (target := kept.get(source))}
        _, standing_in = await self._notes(collection, sorted(others - records.keys()))
        indexed = {
            each.chunk_id: each
            for chunks in (*(own[source] for source in records), *standing_in.values())
            for each in chunks
            if each.duplicate_of is None
        }
        new = {}
        for source in records:
            target = kept.get(source)
            gone = {kept_by(stored[source].links), source if target else None}
            if source in before and stored[source].dedup_threshold is None:
                gone.add(before[source].kept)
            standing = {key for key, each in indexed.items() if each.source not in gone}
            stand_ins = [each for each in indexed.values() if each.source == target]
            new[source] = _represented(own[source], standing, stand_ins)
        replaced = await self._store.replace(collection, _replacement(records, new, indexed))
        if replaced is None:
            raise Busy(
                f"notes of {collection.public_name!r} were changed meanwhile",
                hint="Call again; what is done is kept.",
            )
        self._registry.learn(collection.name, replaced.collection)
        return set(records)

    async def _notes(
        self, collection: Collection, sources: Sequence[str]
    ) -> tuple[dict[str, SourceRecord], dict[str, list[ChunkRecord]]]:
        """Return the records of sources that are stored, and their chunks in order, by source."""
        records = await read_all(self._store, Read(Sources(sources), collection))
        found: dict[str, list[ChunkRecord]] = defaultdict(list)
        async for chunks in chunk_pages(self._store, collection, records):
            for each in chunks:
                found[each.source].append(each)
        return {each.source: each for each in records}, found


async def read_sources(store: Store, collection: Collection) -> list[SourceRecord]:
    """Return the records of all sources, without generated kinds."""
    return await read_all(store, Read(Sources(filter=Not(GENERATED)), collection, limit=_PAGE))


def _replacement(
    records: Mapping[str, SourceRecord],
    new: Mapping[str, Sequence[ChunkRecord]],
    indexed: Mapping[str, ChunkRecord],
) -> Replacement:
    """Return the replacement of notes, by source.

    Args:
        records: Their records.
        new: Their chunks.
        indexed: The chunks by chunkId that are in the indexes, of these notes and of others.
    """
    chunks = [each for own in new.values() for each in own]
    used = {each.duplicate_of for each in chunks}
    return Replacement(
        sources=list(records),
        records=list(records.values()),
        chunks=list(new.values()),
        links=[link for each in records.values() for link in links_of(restored_document(each, ()))],
        term_statistics=TermStatistics.of_chunks(
            [each.terms for each in chunks], [each.lengths for each in chunks]
        ).to_bytes(),
        # They were not changed since they were read.
        stand_ins={
            key: each.created_at
            for key, each in indexed.items()
            if key in used or each.source in records
        },
    )


def _represented(
    chunks: Sequence[ChunkRecord], standing: Values[str], stand_ins: Sequence[ChunkRecord]
) -> list[ChunkRecord]:
    """Return the chunks of a note as duplicates of the nearest of ``stand_ins``; indexed if none.

    Those that deduplication left out remain duplicates of chunks in ``standing``.
    """
    if not stand_ins:
        nearest: list[str | None] = [None] * len(chunks)
    else:
        vectors, others = (
            np.array([each.embedding or () for each in part], dtype=np.float32)
            for part in (chunks, stand_ins)
        )
        nearest = [stand_ins[place].chunk_id for place in np.argmax(vectors @ others.T, axis=1)]
    return [
        each if each.duplicate_of in standing else replace(each, duplicate_of=other)
        for each, other in zip(chunks, nearest, strict=True)
    ]


def _represented_by(target: str | None, behind: Values[str | None]) -> str | None:
    """Return the source of the note that represents one; ``None`` if it is in the indexes.

    Args:
        target: Source of the note that represented it first.
        behind: Sources of what represents its chunks, and ``None`` if one is in the indexes.
    """
    return target if target in behind else next(iter(behind)) if len(behind) == 1 else None


def kept_by(links: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the source of the note that represents the one with these links, if there is one."""
    aside = [e["target"] for e in links if APPLIED_AT in e and e["kind"] == DUPLICATE_OF]
    return aside[-1] if aside else None


async def carry_links(ports: IndexPorts, collection: Collection, built: Collection) -> None:
    """Give a new generation the links that consolidation added, see :meth:`NoteLinks.copy`."""
    await NoteLinks(ports.store, ports.registry).copy(collection, built)
