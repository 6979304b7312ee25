"""The consolidator: reports on the notes of a collection, applies the report and undoes that.

What is applied is recorded with the notes: each link that was added has the time at which it was.
A note with the added link ``duplicate_of`` is stored, but out of the indexes, like a chunk that
deduplication leaves out (:mod:`ability_search.index.deduplication`).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ability_search.analysis.consolidation_report import Consolidation, NoteLink
from ability_search.analysis.graph_analyzer import (
    check_analysable,
    read_chunks,
    read_sources,
    report_progress,
)
from ability_search.collection import Collection
from ability_search.documents import Vector
from ability_search.errors import Busy
from ability_search.index.index_calls import Report
from ability_search.index.preparation import links_of, restored_document
from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, ChunkVector, Replacement, SourceRecord
from ability_search.store.registry import Registry
from ability_search.text.term_statistics import TermStatistics
from ability_search.understanding.periods import day_of
from ability_search.understanding.written_dates import written_periods

DUPLICATE_OF: Final = "duplicate_of"
APPLIED_AT: Final = "appliedAt"
"""Field of an added link: when it was added, in epoch milliseconds."""
_PAGE = 200
"""Texts read at a time."""
_GROUP = 50
"""Notes written in one transaction."""
_TIMES = ("time", "date", "timestamp", "updated_at", "updatedAt", "created_at", "createdAt")
"""Fields of metadata with the time of a note."""

Links = Sequence[Mapping[str, Any]]


class Consolidator:
    """Consolidates collections.

    Args:
        store: The store of the collections.
        registry: Learns the records of changed collections.
        now: The clock, in epoch milliseconds.
    """

    def __init__(self, store: Store, registry: Registry, now: Callable[[], int]) -> None:
        self._store = store
        self._registry = registry
        self._now = now

    async def consolidate(
        self, collection: Collection, report: Report, *, apply: bool = False, undo: bool = False
    ) -> Consolidation:
        """Compare the notes of a collection; change them only if asked to.

        Args:
            collection: The collection.
            report: Receives the progress.
            apply: Set duplicates aside, and add the missing links.
            undo: First take back what the last ``apply`` changed and is still as it left it.

        Raises:
            InvalidInput: if the extra ``analysis`` is not installed.
            TooLarge: if it has too many chunks.
            GenerationGone: if it is rebuilt or deleted meanwhile.
            Busy: if others change the same notes meanwhile. A second call completes the rest.
        """
        started = time.perf_counter()
        check_analysable(collection, "consolidate")
        sources = await read_sources(self._store, collection)
        undone = 0
        if undo:
            await report_progress(report, collection, 0, "undoing")
            undone = await self._write(collection, sources, _without_last(sources))
            sources = await read_sources(self._store, collection)
        chunks, vectors = await read_chunks(self._store, collection, report)
        texts = await self._texts(collection, sources, chunks)
        await report_progress(report, collection, len(chunks), "comparing")
        today = day_of(self._now())
        found = await asyncio.to_thread(
            _findings, chunks, vectors, sources, texts, today, collection.revision
        )
        applied = 0
        if apply:
            await report_progress(report, collection, len(chunks), "applying")
            applied = await self._write(collection, sources, _added(sources, found, self._now()))
        took = round(1e3 * (time.perf_counter() - started), 1)
        return found.model_copy(update={"applied": applied, "undone": undone, "took_ms": took})

    async def _texts(
        self,
        collection: Collection,
        sources: Iterable[SourceRecord],
        chunks: Sequence[ChunkVector],
    ) -> dict[str, str]:
        """Return the texts of the notes by chunkId."""
        single = {each.source for each in sources if each.chunks == 1}
        wanted = [each.chunk_id for each in chunks if each.source in single]
        found: dict[str, str] = {}
        for begin in range(0, len(wanted), _PAGE):
            page = wanted[begin : begin + _PAGE]
            passages = await self._store.passages(collection.type, page, None)
            found.update({each.chunk_id: each.content for each in passages})
        return found

    async def _write(
        self, collection: Collection, sources: Sequence[SourceRecord], changes: Mapping[str, Links]
    ) -> int:
        """Give notes other links; return their number.

        A note is set aside or not as its links say. A note that is written returns its duplicates
        to the indexes, so that those recorded by links are set aside again.
        """
        links = {each.source: changes.get(each.source, each.links) for each in sources}
        kept = {source: _kept(own) for source, own in links.items()}
        first = dict.fromkeys(source for source in changes if kept[source] is None)
        then = [s for s, target in kept.items() if target and (s in changes or target in first)]
        hashes = {each.source: each.content_hash for each in sources}
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
        links: Mapping[str, Links],
        kept: Mapping[str, str | None],
        hashes: Mapping[str, str],
    ) -> set[str]:
        """Write notes in one transaction; return those that were still as they were read."""
        targets = {target for source in group if (target := kept[source])}
        records = {
            each.source: replace(each, links=links[each.source])
            for each in await self._store.source_records_named(collection.type, group)
            if each.content_hash == hashes[each.source] and each.chunks == 1
        }
        chunks = {
            each.source: each
            for each in await self._store.chunk_records(
                collection.type, [*{*group, *targets}], kinds=False, first=0, end=1
            )
        }
        records = {source: each for source, each in records.items() if source in chunks}
        if not records:
            return set()
        new = {s: _set_aside(chunks[s], chunks.get(kept[s] or "")) for s in records}
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


def _set_aside(chunk: ChunkRecord, stand_in: ChunkRecord | None) -> ChunkRecord:
    """Return a chunk as a duplicate of another one, unless that is gone or a duplicate itself."""
    if stand_in is None or stand_in.duplicate_of is not None:
        return replace(chunk, duplicate_of=None)
    return replace(chunk, duplicate_of=stand_in.chunk_id)


def _kept(links: Links) -> str | None:
    """Return the source of the note that represents the one with these links, if there is one."""
    aside = [e["target"] for e in links if APPLIED_AT in e and e["kind"] == DUPLICATE_OF]
    return aside[-1] if aside else None


def _without_last(sources: Iterable[SourceRecord]) -> dict[str, Links]:
    """Return the links of notes without those that were added last, of the notes that have some."""
    applied = {each.source: [link.get(APPLIED_AT, 0) for link in each.links] for each in sources}
    last = max((time for times in applied.values() for time in times), default=0)
    return {
        each.source: [link for link in each.links if link.get(APPLIED_AT) != last]
        for each in sources
        if last and last in applied[each.source]
    }


def _added(sources: Iterable[SourceRecord], found: Consolidation, now: int) -> dict[str, Links]:
    """Return the links of notes with the missing ones, of the notes that miss some."""
    new: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    links = [
        *found.links,
        *(
            NoteLink(source=e.source, target=e.kept, kind=DUPLICATE_OF, weight=e.cosine, reason="")
            for e in found.duplicates
        ),
    ]
    for each in links:
        link = each.model_dump(include={"target", "kind", "weight"})
        new[each.source].append({**link, APPLIED_AT: now})
    stored = {each.source: each.links for each in sources}
    return {source: [*stored[source], *own] for source, own in new.items()}


def _findings(
    chunks: Sequence[ChunkVector],
    vectors: Vector,
    sources: Sequence[SourceRecord],
    texts: Mapping[str, str],
    today: int,
    revision: int,
) -> Consolidation:
    """Compare in a thread; loading scipy takes a moment too, and workers may be without it."""
    from ability_search.analysis.consolidation import NEIGHBOURS, Note, consolidate
    from ability_search.analysis.vector_measures import nearest

    records = {each.source: each for each in sources}
    places = [place for place, each in enumerate(chunks) if each.chunk_id in texts]
    notes = []
    for place in places:
        chunk = chunks[place]
        record = records[chunk.source]
        notes.append(
            Note(
                source=chunk.source,
                chunk_id=chunk.chunk_id,
                text=texts[chunk.chunk_id],
                day=_day(record),
                metadata=record.metadata,
                links=frozenset((str(e["target"]), str(e["kind"])) for e in record.links),
            )
        )
    own = vectors[places]
    return consolidate(
        notes,
        own,
        nearest(own, limit=NEIGHBOURS),
        today=today,
        longer=sum(each.chunks > 1 for each in sources),
        revision=revision,
    )


def _day(record: SourceRecord) -> int:
    """Return the day of the time in the metadata of a note, or else on which it was stored."""
    for name in _TIMES:
        value = record.metadata.get(name)
        for written in written_periods(value[:40]) if isinstance(value, str) else ():
            if written.period.last is not None:
                return written.period.last
    return day_of(record.indexed_at)
