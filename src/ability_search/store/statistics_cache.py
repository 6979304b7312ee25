"""Term statistics of collections, read from the store and cached.

The store holds a log of them: every transaction that changes chunks appends what it added and
removed, and a long log is folded into one entry. A worker reads a log once, then only its new
entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ability_search.collection import Collection
from ability_search.store.port import TermStatisticsStore
from ability_search.store.records import TermStatisticsEntry
from ability_search.text.term_statistics import TermStatistics

log = logging.getLogger(__name__)

_FOLD_AFTER = 32
"""Minimum number of log entries to fold, since the last fold."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Statistics of a generation as of a revision."""

    statistics: TermStatistics
    revision: int


EMPTY = Snapshot(TermStatistics.empty(), 0)


class StatisticsCache:
    """Cache of the term statistics of collections."""

    def __init__(self, store: TermStatisticsStore) -> None:
        self._store = store
        self._known: dict[str, Snapshot] = {}
        self._reading: dict[str, asyncio.Lock] = {}

    async def of(self, collection: Collection) -> TermStatistics:
        """Return the statistics of a collection's live generation, no older than its record.

        Raises:
            DatabaseUnavailable: if they have to be read and cannot be.
        """
        return (await self.snapshot(collection)).statistics

    async def snapshot(self, collection: Collection) -> Snapshot:
        """Return the same as :meth:`of`, with the revision."""
        known = self._known.get(collection.type, EMPTY)
        if known.revision >= collection.revision:
            return known
        async with self._reading.setdefault(collection.type, asyncio.Lock()):
            known = self._known.get(collection.type, EMPTY)
            if known.revision < collection.revision:
                known = await self._current(collection)
                self._known[collection.type] = known
        return known

    async def _current(self, collection: Collection) -> Snapshot:
        """Return the statistics of a collection, read as far as they are not known."""
        known = self._known.get(collection.type, EMPTY)
        entries = await self._store.term_statistics(collection.type, after=known.revision)
        return await asyncio.to_thread(advanced, known, entries, collection.revision)

    async def fold(self, collection: Collection) -> bool:
        """Fold the log of a collection if it is long enough; return whether it was folded."""
        entries = await self._store.term_statistics(collection.type, after=0)
        base = _last_base(entries)
        unused = base.revision if base else 0
        if sum(each.revision > unused for each in entries) < _FOLD_AFTER:
            return False
        merged = await asyncio.to_thread(advanced, EMPTY, entries, entries[-1].revision)
        folded = await self._store.fold_term_statistics(
            collection.type,
            revision=merged.revision,
            count=len(entries),
            unused=unused,
            merged=merged.statistics.to_bytes(),
        )
        log.debug("folded %d entries of %s", len(entries), collection.type)
        return folded

    def forget(self, chunk_type: str) -> None:
        """Drop the cached statistics of a generation."""
        self._known.pop(chunk_type, None)
        self._reading.pop(chunk_type, None)


def advanced(known: Snapshot, entries: Sequence[TermStatisticsEntry], revision: int) -> Snapshot:
    """Apply log entries, in order of their revision, to a snapshot.

    A base entry represents everything up to its revision.
    """
    base = _last_base(entries)
    if base is None:
        start, changes = known.statistics, list(entries)
    else:
        start = EMPTY.statistics
        changes = [base, *(entry for entry in entries if entry.revision > base.revision)]
    added = [TermStatistics.from_bytes(entry.added) for entry in changes if entry.added]
    removed = [
        TermStatistics.of_chunks(entry.removed, entry.removed_lengths)
        for entry in changes
        if entry.removed
    ]
    latest = max((entry.revision for entry in entries), default=0)
    return Snapshot(start.merged(added).less(removed), max(revision, latest, known.revision))


def _last_base(entries: Sequence[TermStatisticsEntry]) -> TermStatisticsEntry | None:
    return next((entry for entry in reversed(entries) if entry.base), None)
