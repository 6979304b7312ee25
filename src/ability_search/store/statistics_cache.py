"""Term statistics of collections, read from the store and cached.

The store holds a log of them: every transaction that changes chunks appends what it added and
removed, and a long log is folded into one entry. A worker reads a log once, then only its new
entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ability_search.collection import Collection
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.values import Delete, Key, Put, Read, Records, of_generation
from ability_search.text.term_statistics import TermStatistics

log = logging.getLogger(__name__)

_FOLD_AFTER = 32
"""Minimum number of log entries to fold, since the last fold."""
TERMS: Final = "terms"
"""Kind of the records of a log, of a generation, by revision."""


@dataclass(frozen=True, slots=True)
class TermStatisticsEntry:
    """A change of the term statistics of a generation."""

    revision: int
    base: bool
    """Whether the entry represents everything up to its revision."""
    added: bytes | None
    removed: Sequence[Sequence[int]]
    """Term ids of each removed chunk."""
    removed_lengths: Sequence[Sequence[int]]
    changes: int = 1
    """Revision of the record."""


def revision_key(revision: int) -> Key:
    """Return the key of the entry of a revision."""
    return (f"{revision:016d}",)


def put_entry(generation: str, entry: TermStatisticsEntry) -> Put:
    """Return the change that stores an entry, in place of any other of its revision."""
    removed = {name: [list(each) for each in getattr(entry, name)] for name in _REMOVED}
    return Put(
        TERMS,
        of_generation(generation),
        revision_key(entry.revision),
        {"base": entry.base, **removed},
        data=entry.added,
    )


_REMOVED = ("removed", "removed_lengths")


async def term_log(store: Store, generation: str, *, after: int = 0) -> list[TermStatisticsEntry]:
    """Return the log of a generation after a revision, in order; none if it was dropped."""
    of = Records(TERMS, of_generation(generation))
    ask = Read(of, after=revision_key(after))
    return [
        TermStatisticsEntry(int(each.key[0]), added=each.data, changes=each.revision, **each.fields)
        for each in await read_all(store, ask)
    ]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Statistics of a generation as of a revision."""

    statistics: TermStatistics
    revision: int


EMPTY = Snapshot(TermStatistics.empty(), 0)


class StatisticsCache:
    """Cache of the term statistics of collections."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Snapshot] = {}
        self._reading: dict[str, asyncio.Lock] = {}

    async def of(self, collection: Collection) -> TermStatistics:
        """Return the statistics of a collection's live generation, no older than its record.

        Raises:
            DatabaseUnavailable: if they have to be read and cannot be.
        """
        generation, revision = collection.type, collection.revision
        known = self._known.get(generation, EMPTY)
        if known.revision < revision:
            async with self._reading.setdefault(generation, asyncio.Lock()):
                known = self._known.get(generation, EMPTY)
                if known.revision < revision:
                    entries = await term_log(self._store, generation, after=known.revision)
                    known = await asyncio.to_thread(advanced, known, entries, revision)
                    self._known[generation] = known
        return known.statistics

    async def fold(self, collection: Collection) -> bool:
        """Fold the log of a collection if it is long enough; return whether it was folded.

        The last entry becomes one that represents all. Those before the last such one are deleted;
        the others stay for who reads the log at this moment: a store need not have snapshots.
        """
        entries = await term_log(self._store, collection.type)
        base = _last_base(entries)
        unused = base.revision if base else 0
        if sum(each.revision > unused for each in entries) < _FOLD_AFTER:
            return False
        merged = await asyncio.to_thread(advanced, EMPTY, entries, entries[-1].revision)
        last = entries[-1]
        folded = TermStatisticsEntry(last.revision, True, merged.statistics.to_bytes(), (), ())
        put = replace(put_entry(collection.type, folded), revision=last.changes)
        before = Records(TERMS, of_generation(collection.type), until=revision_key(unused - 1))
        committed = await self._store.commit([put, *([Delete(before)] if base else [])])
        log.debug("folded %d entries of %s", len(entries), collection.type)
        return committed.done

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
