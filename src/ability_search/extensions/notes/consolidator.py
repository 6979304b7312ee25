"""The consolidator: reports on the notes of a collection, applies the report and undoes that.

What is applied is recorded with the notes, see :mod:`ability_search.extensions.notes.note_links`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ability_search.collection import Collection
from ability_search.config.model_settings import Kinds
from ability_search.documents import Vector
from ability_search.extensions.notes.consolidation import (
    COMPARED,
    NEIGHBOURS,
    Comparison,
    compare,
    named_days,
)
from ability_search.extensions.notes.consolidation_report import (
    Consolidation,
    ContradictingNotes,
    Judge,
)
from ability_search.extensions.notes.contradiction_judge import PAIRS, Judgement, judge_by_model
from ability_search.extensions.notes.graph_analysis import NoteChunk
from ability_search.extensions.notes.graph_analyzer import (
    check_analysable,
    read_chunks,
    report_progress,
)
from ability_search.extensions.notes.note_links import (
    APPLIED_AT,
    DUPLICATE_OF,
    LinkedNote,
    NoteLinks,
    read_sources,
)
from ability_search.extensions.understanding.periods import day_of
from ability_search.index.index_calls import Progress, Report
from ability_search.ports import Chat
from ability_search.store.port import Store
from ability_search.store.records import SourceRecord
from ability_search.store.registry import Registry

_TIMES = ("time", "date", "timestamp", "updated_at", "updatedAt", "created_at", "createdAt")
"""Fields of metadata with the time of a note."""


class Consolidator:
    """Consolidates collections.

    Args:
        store: The store of the collections.
        registry: Learns the records of changed collections.
        chat: The language model that judges contradictions.
        settings: Its model and timeout.
        now: The clock, in epoch milliseconds.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        chat: Chat,
        settings: Kinds,
        now: Callable[[], int],
    ) -> None:
        self._store = store
        self._chat = chat
        self._settings = settings
        self._links = NoteLinks(store, registry)
        self._now = now

    async def consolidate(
        self,
        collection: Collection,
        report: Report,
        *,
        judge: Judge = "rules",
        apply: bool = False,
        undo: bool = False,
    ) -> Consolidation:
        """Compare the notes of a collection; change them only if asked to.

        Args:
            collection: The collection.
            report: Receives the progress.
            judge: Who decides on contradictions.
            apply: Set duplicates aside, and add the missing links.
            undo: First take back what the last ``apply`` changed and is still as it left it.

        Raises:
            InvalidInput: if the extra ``analysis`` is not installed.
            TooLarge: if it has too many chunks.
            GenerationGone: if it is rebuilt or deleted meanwhile.
            Busy: if others change the same notes meanwhile. A second call completes the rest.
        """
        started = time.perf_counter()
        check_analysable(collection, "notes-consolidate")
        sources, linked = await self._read(collection)
        undone = applied = 0
        if undo:
            await report_progress(report, collection, 0, "undoing")
            undone = await self._links.write(collection, sources, linked, _without_last(linked))
            sources, linked = await self._read(collection)
        found = await self._found(collection, sources, judge, report)
        if apply:
            await report_progress(report, collection, collection.chunks, "applying")
            added = _added(sources, linked, found, self._now())
            applied = await self._links.write(collection, sources, linked, added)
        took = round(1e3 * (time.perf_counter() - started), 1)
        return found.model_copy(update={"applied": applied, "undone": undone, "took_ms": took})

    async def _read(
        self, collection: Collection
    ) -> tuple[list[SourceRecord], dict[str, LinkedNote]]:
        sources = await read_sources(self._store, collection)
        return sources, await self._links.read(collection, sources)

    async def _found(
        self, collection: Collection, sources: Sequence[SourceRecord], judge: Judge, report: Report
    ) -> Consolidation:
        """Return the report on the notes as they are."""
        chunks, vectors = await read_chunks(self._store, collection, report, texts=True)
        await report_progress(report, collection, len(chunks), "comparing")
        notes = {each.source: each for each in sources}
        further = PAIRS if judge == "chat" else 0
        compared, suspected = await asyncio.to_thread(_compared, chunks, vectors, notes, further)
        judgement = Judgement(suspected, 0, [])
        if judge == "chat":
            judgement = await self._judged(collection, suspected, compared.chunks, report)
        warnings = judgement.warnings
        if len(compared.pairs) > COMPARED:
            warnings += [
                f"the {COMPARED:,} most similar of {len(compared.pairs):,} pairs of chunks were"
                " compared for contradictions"
            ]
        found = await asyncio.to_thread(
            compared.report,
            notes,
            judgement.contradictions,
            today=day_of(self._now()),
            revision=collection.revision,
        )
        return found.model_copy(update={"judged": judgement.judged, "warnings": warnings or None})

    async def _judged(
        self,
        collection: Collection,
        pairs: Sequence[ContradictingNotes],
        chunks: Sequence[NoteChunk],
        report: Report,
    ) -> Judgement:
        async def judged(count: int) -> None:
            await report(Progress(collection.public_name, count, len(pairs), "judging"))

        await judged(0)
        by_id = {each.chunk_id: each for each in chunks}
        return await judge_by_model(pairs, by_id, self._chat, self._settings, judged)


def _without_last(linked: Mapping[str, LinkedNote]) -> dict[str, LinkedNote]:
    """Return the notes with links that were added last, without these."""
    times = (link.get(APPLIED_AT, 0) for note in linked.values() for link in note.links)
    last = max(times, default=0)
    changes = {}
    for source, note in linked.items():
        taken = [link["kind"] for link in note.links if link.get(APPLIED_AT) == last]
        if taken:
            kept = None if DUPLICATE_OF in taken else note.kept
            left = tuple(link for link in note.links if link.get(APPLIED_AT) != last)
            changes[source] = LinkedNote(left, kept)
    return changes


def _added(
    sources: Sequence[SourceRecord],
    linked: Mapping[str, LinkedNote],
    found: Consolidation,
    now: int,
) -> dict[str, LinkedNote]:
    """Return the notes that miss links, with these."""
    new: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for link in found.links:
        wanted = link.model_dump(include={"target", "kind", "weight"})
        new[link.source].append({**wanted, APPLIED_AT: now})
    kept = {source: note.kept for source, note in linked.items()}
    for note in found.duplicates:
        kept[note.source] = note.kept
        aside = {"target": note.kept, "kind": DUPLICATE_OF, "weight": note.cosine}
        new[note.source].append({**aside, APPLIED_AT: now})
    stored = {each.source: each.links for each in sources}
    return {
        source: LinkedNote((*stored[source], *links), kept.get(source))
        for source, links in new.items()
    }


def _compared(
    chunks: Sequence[NoteChunk],
    vectors: Vector,
    notes: Mapping[str, SourceRecord],
    further: int,
) -> tuple[Comparison, list[ContradictingNotes]]:
    """Compare in a thread; loading scipy takes a moment too, and workers may be without it."""
    from ability_search.extensions.notes.vector_measures import nearest

    places = [place for place, each in enumerate(chunks) if each.source in notes]
    days = {
        source: next(named_days(each.metadata, _TIMES), day_of(each.indexed_at))
        for source, each in notes.items()
    }
    own = [replace(chunks[place], day=days[chunks[place].source]) for place in places]
    _, groups = np.unique([each.source for each in own], return_inverse=True)
    vectors = vectors[places]
    found = compare(own, vectors, nearest(vectors, limit=NEIGHBOURS, groups=groups))
    return found, found.suspected(limit=further)
