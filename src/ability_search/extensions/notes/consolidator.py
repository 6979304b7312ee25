"""The consolidator: reports on the notes of a collection, applies the report and undoes that.

What is applied is recorded with the notes, see :mod:`ability_search.extensions.notes.note_links`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ability_search.collection import Collection
from ability_search.extensions.notes.consolidation import COMPARED, compare
from ability_search.extensions.notes.consolidation_report import Consolidation, Judge
from ability_search.extensions.notes.contradiction_judge import PAIRS, Judgement, judge_by_model
from ability_search.extensions.notes.graph_analyzer import (
    check_analysable,
    read_chunks,
    report_progress,
)
from ability_search.extensions.notes.note_links import (
    APPLIED_AT,
    DUPLICATE_OF,
    Note,
    read_notes,
    write_notes,
)
from ability_search.extensions.understanding.periods import day_of
from ability_search.index.index_calls import Progress, Report
from ability_search.index.index_ports import IndexPorts
from ability_search.store.records import SourceRecord


async def consolidate(
    ports: IndexPorts,
    collection: Collection,
    report: Report,
    *,
    judge: Judge = "rules",
    apply: bool = False,
    undo: bool = False,
) -> Consolidation:
    """Compare the notes of a collection; change them only if asked to.

    Args:
        ports: The store, the registry, the language model and the clock.
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
    notes = await read_notes(ports.store, collection)
    undone = applied = 0
    if undo:
        await report_progress(report, collection, 0, "undoing")
        undone = await write_notes(ports, collection, notes, _without_last(notes))
        notes = await read_notes(ports.store, collection)
    records = {source: note.record for source, note in notes.items()}
    found = await _findings(ports, collection, records, judge, report)
    if apply:
        await report_progress(report, collection, collection.chunks, "applying")
        added = _added(notes, found, ports.now())
        applied = await write_notes(ports, collection, notes, added)
    took = round(1e3 * (time.perf_counter() - started), 1)
    return found.model_copy(update={"applied": applied, "undone": undone, "took_ms": took})


async def _findings(
    ports: IndexPorts,
    collection: Collection,
    notes: Mapping[str, SourceRecord],
    judge: Judge,
    report: Report,
) -> Consolidation:
    """Return the report on the notes as they are."""
    chunks, vectors = await read_chunks(ports.store, collection, report, texts=True)
    await report_progress(report, collection, len(chunks), "comparing")
    further = PAIRS if judge == "chat" else 0
    compared = await asyncio.to_thread(compare, chunks, vectors, notes)
    suspected = await asyncio.to_thread(compared.suspected, limit=further)
    judgement = Judgement(suspected, 0, [])
    if judge == "chat":

        async def judged(count: int) -> None:
            await report(Progress(collection.public_name, count, len(suspected), "judging"))

        await judged(0)
        by_id = {each.chunk_id: each for each in compared.chunks}
        settings = ports.settings.kinds
        judgement = await judge_by_model(suspected, by_id, ports.chat, settings, judged)
    warnings = judgement.warnings
    if len(compared.pairs) > COMPARED:
        warnings += [
            f"the {COMPARED:,} most similar of {len(compared.pairs):,} pairs of chunks were"
            " compared for contradictions"
        ]
    found = await asyncio.to_thread(
        compared.report,
        judgement.contradictions,
        today=day_of(ports.now()),
        revision=collection.revision,
    )
    return found.model_copy(update={"judged": judgement.judged, "warnings": warnings or None})


def _without_last(notes: Mapping[str, Note]) -> dict[str, Note]:
    """Return the notes with links that were added last, without these."""
    times = (link.get(APPLIED_AT, 0) for note in notes.values() for link in note.record.links)
    last = max(times, default=0)
    changes = {}
    for source, note in notes.items():
        taken = [link["kind"] for link in note.record.links if link.get(APPLIED_AT) == last]
        if taken:
            kept = None if DUPLICATE_OF in taken else note.kept
            left = [link for link in note.record.links if link.get(APPLIED_AT) != last]
            changes[source] = note.linked(left, kept)
    return changes


def _added(notes: Mapping[str, Note], found: Consolidation, now: int) -> dict[str, Note]:
    """Return the notes that miss links, with these."""
    new: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    kept = {source: note.kept for source, note in notes.items()}
    for link in found.links:
        wanted = link.model_dump(include={"target", "kind", "weight"})
        new[link.source].append({**wanted, APPLIED_AT: now})
    for note in found.duplicates:
        kept[note.source] = note.kept
        aside = {"target": note.kept, "kind": DUPLICATE_OF, "weight": note.cosine}
        new[note.source].append({**aside, APPLIED_AT: now})
    return {
        source: notes[source].linked([*notes[source].record.links, *links], kept[source])
        for source, links in new.items()
    }
