"""Links that a consolidation adds to notes, and the notes that they set aside.

Each added link has the time at which it was added, so that it can be taken back. A note with the
added link ``duplicate_of`` is stored, but out of the indexes, like a chunk that deduplication
leaves out (:mod:`ability_search.index.deduplication`); it returns if the note that represents it is
replaced or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ability_search.collection import Collection
from ability_search.errors import Busy
from ability_search.index.preparation import links_of, restored_document
from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, Replacement, SourceRecord
from ability_search.store.registry import Registry
from ability_search.text.term_statistics import TermStatistics

DUPLICATE_OF: Final = "duplicate_of"
APPLIED_AT: Final = "appliedAt"
"""Field of an added link: when it was added, in epoch milliseconds."""
_PAGE = 500
"""Source records read at a time."""
_GROUP = 50
"""Notes written in one transaction."""

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
        aside: set[str] = set()
        for begin in range(0, len(linked), _PAGE):
            names = [each.source for each in linked[begin : begin + _PAGE]]
            chunks = await self._first_chunks(collection, names)
            aside |= {source for source, each in chunks.items() if each.duplicate_of is not None}
        return {
            each.source: LinkedNote(
                tuple(each.links), kept_by(each.links) if each.source in aside else None
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

        A note that is written returns its duplicates to the indexes, so that the others are set
        aside again.

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
        first = dict.fromkeys(source for source in changes if kept[source] is None)
        then = [s for s, target in kept.items() if target and (s in changes or target in first)]
        hashes = {each.source: each.content_hash for each in records}
        written = 0
        for part in (list(first), then):
            for begin in range(0, len(part), _GROUP):
                group = part[begin : begin + _GROUP]
                done = await self._write_group(collection, group, links, kept, hashes)
                written += len(done & changes.keys())
        return written

    async def _write_group(
        self,
        collection: Collection,
        group: Sequence[str],
        links: Mapping[str, Sequence[Mapping[str, Any]]],
        kept: Mapping[str, str | None],
        hashes: Mapping[str, str],
    ) -> set[str]:
        """Write notes in one transaction; return those that were still as they were read."""
        targets = {target for source in group if (target := kept.get(source))}
        records = {
            each.source: replace(each, links=links[each.source])
            for each in await self._store.source_records_named(collection.type, group)
            if each.content_hash == hashes[each.source] and each.chunks == 1
        }
        chunks = await self._first_chunks(collection, [*{*group, *targets}])
        records = {source: each for source, each in records.items() if source in chunks}
        if not records:
            return set()
        new = {s: _set_aside(chunks[s], chunks.get(kept.get(s) or "")) for s in records}
        guards = [chunks[source] for source in {*records, *targets} if source in chunks]
        replaced = await self._store.replace(
            collection,
            Replacement(
                sources=list(records),
                records=list(records.values()),
                chunks=[[new[source]] for source in records],
                links=[
                    link
                    for each in records.values()
                    for link in links_of(restored_document(each, ()))
                ],
                term_statistics=TermStatistics.of_chunks(
                    [each.terms for each in new.values()], [each.lengths for each in new.values()]
                ).to_bytes(),
                # They were not changed since they were read.
                stand_ins={c.chunk_id: c.created_at for c in guards if c.duplicate_of is None},
            ),
        )
        if replaced is None:
            raise Busy(
                f"notes of {collection.public_name!r} were changed meanwhile",
                hint="Call again; what is done is kept.",
            )
        self._registry.learn(collection.name, replaced.collection)
        return set(records)

    async def _first_chunks(
        self, collection: Collection, sources: Sequence[str]
    ) -> dict[str, ChunkRecord]:
        found = await self._store.chunk_records(
            collection.type, sources, kinds=False, first=0, end=1
        )
        return {each.source: each for each in found}


async def read_sources(store: Store, collection: Collection) -> list[SourceRecord]:
    """Return the records of all sources, without generated kinds."""
    records: list[SourceRecord] = []
    after = ""
    while page := await store.source_records(collection.type, after=after, limit=_PAGE):
        records += page
        after = page[-1].source
    return records


def _set_aside(chunk: ChunkRecord, stand_in: ChunkRecord | None) -> ChunkRecord:
    """Return a chunk as a duplicate of another one, unless that is gone or a duplicate itself."""
    if stand_in is None or stand_in.duplicate_of is not None:
        return replace(chunk, duplicate_of=None)
    return replace(chunk, duplicate_of=stand_in.chunk_id)


def kept_by(links: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the source of the note that represents the one with these links, if there is one."""
    aside = [e["target"] for e in links if APPLIED_AT in e and e["kind"] == DUPLICATE_OF]
    return aside[-1] if aside else None
