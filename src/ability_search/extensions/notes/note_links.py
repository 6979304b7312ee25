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
from ability_search.store.values import Read, Sources
from ability_search.text.term_statistics import TermStatistics

DUPLICATE_OF: Final = "duplicate_of"
APPLIED_AT: Final = "appliedAt"
"""Field of an added link: when it was added, in epoch milliseconds."""
_PAGE = 500
"""Source records read at a time."""
_GROUP = 50
"""Chunks written in one transaction, unless a note has more."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it is stored, or as it is to be.

    Attributes:
        record: Its record, with all its links.
        kept: Source of the note that represents it; ``None`` if it is in the indexes.
    """

    record: SourceRecord
    kept: str | None = None

    def linked(self, links: Sequence[Mapping[str, Any]], kept: str | None) -> Note:
        """Return the note with other links, represented by another one."""
        return Note(replace(self.record, links=links), kept)


async def read_notes(store: Store, collection: Collection) -> dict[str, Note]:
    """Return all notes of a collection by source."""
    records = await read_sources(store, collection)
    aside = [each for each in records if kept_by(each.links)]
    behind: defaultdict[str, set[str | None]] = defaultdict(set)
    async for chunks in chunk_pages(store, collection, aside):
        for each in chunks:
            behind[each.source].add(each.duplicate_of and source_of(each.duplicate_of))
    notes = {}
    for record in records:
        kept, now = kept_by(record.links), behind[record.source]
        if kept not in now:  # what represented it first no longer represents its chunks
            kept = next(iter(now)) if len(now) == 1 else None
        notes[record.source] = Note(record, kept)
    return notes


async def carry_links(ports: IndexPorts, collection: Collection, built: Collection) -> None:
    """Give the notes of a generation the added links that they have in another one.

    Args:
        ports: The store, and the registry that learns the changed records.
        collection: The generation whose links are copied.
        built: A generation with the same documents.

    Raises:
        Busy: if others change the same notes meanwhile.
    """
    if not collection.links and not built.links:
        return
    notes, changes = await read_notes(ports.store, built), {}
    live = await read_notes(ports.store, collection)
    for source, note in notes.items():
        there = live.get(source)
        if there is not None and any(APPLIED_AT in link for link in there.record.links):
            links, kept = [*there.record.links], there.kept
        else:
            links, kept = [each for each in note.record.links if APPLIED_AT not in each], None
        if (links, kept) != ([*note.record.links], note.kept):
            changes[source] = note.linked(links, kept)
    await write_notes(ports, built, notes, changes)


async def write_notes(
    ports: IndexPorts,
    collection: Collection,
    before: Mapping[str, Note],
    changes: Mapping[str, Note],
) -> int:
    """Change notes; return the number of those that were still as they were read.

    Args:
        ports: The store, and the registry that learns the changed records.
        collection: Their collection.
        before: What :func:`read_notes` returned.
        changes: The notes to change, by source.

    Raises:
        Busy: if others change the same notes meanwhile. A second call completes the rest.
    """
    written = 0
    # Those that return to the indexes first: they may represent others.
    for aside in (False, True):
        records = [each.record for each in changes.values() if (each.kept is not None) == aside]
        for group in batches(records, chunks_of, most=_GROUP, most_bytes=_GROUP):
            written += await _write_group(ports, collection, group, before, changes)
    return written


async def _write_group(
    ports: IndexPorts,
    collection: Collection,
    group: Sequence[SourceRecord],
    before: Mapping[str, Note],
    changes: Mapping[str, Note],
) -> int:
    """Write notes in one transaction; return how many were still as they were read."""
    stored, own = await _stored_notes(ports.store, collection, [each.source for each in group])
    records = {
        each.source: replace(there, links=each.links)
        for each in group
        if (there := stored.get(each.source)) is not None
        and there.content_hash == each.content_hash
        and there.chunks == len(own[each.source])
    }
    if not records:
        return 0
    others = {source_of(e.duplicate_of) for s in records for e in own[s] if e.duplicate_of}
    others |= {kept for source in records if (kept := changes[source].kept)}
    _, standing_in = await _stored_notes(ports.store, collection, sorted(others - records.keys()))
    indexed = {
        each.chunk_id: each
        for chunks in (*(own[source] for source in records), *standing_in.values())
        for each in chunks
        if each.duplicate_of is None
    }
    new = {}
    for source, record in records.items():
        target = changes[source].kept
        gone = {kept_by(stored[source].links), source if target else None}
        if record.dedup_threshold is None:
            gone.add(before[source].kept)
        standing = {key for key, each in indexed.items() if each.source not in gone}
        stand_ins = [each for each in indexed.values() if each.source == target]
        new[source] = _represented(own[source], standing, stand_ins)
    replaced = await ports.store.replace(collection, _replacement(records, new, indexed))
    if replaced is None:
        raise Busy(
            f"notes of {collection.public_name!r} were changed meanwhile",
            hint="Call again; what is done is kept.",
        )
    ports.registry.learn(collection.name, replaced.collection)
    return len(records)


async def _stored_notes(
    store: Store, collection: Collection, sources: Sequence[str]
) -> tuple[dict[str, SourceRecord], dict[str, list[ChunkRecord]]]:
    """Return the records of sources that are stored, and their chunks in order, by source."""
    records = await read_all(store, Read(Sources(sources), collection))
    found: dict[str, list[ChunkRecord]] = defaultdict(list)
    async for chunks in chunk_pages(store, collection, records):
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
    """Return the replacement of notes; ``indexed`` are their chunks in the indexes and others'."""
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


def kept_by(links: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the source of the note that represents the one with these links, if there is one."""
    aside = [e["target"] for e in links if APPLIED_AT in e and e["kind"] == DUPLICATE_OF]
    return aside[-1] if aside else None
