"""Term statistics of collections, read from the database and cached.

The database holds a log of them: every transaction that changes chunks appends what it added and
removed, and a long log is folded into one record. A worker reads the log once, then only its new
records.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.collection import Collection
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.text.term_statistics import TermStatistics

log = logging.getLogger(__name__)

_FOLD_AFTER = 32
"""Minimum number of log records to fold."""


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
        return (await self.snapshot(collection)).statistics

    async def snapshot(self, collection: Collection) -> Snapshot:
        """Return the same as :meth:`of`, with the revision."""
        known = self._known.get(collection.type, EMPTY)
        if known.revision >= collection.revision:
            return known
        async with self._reading.setdefault(collection.type, asyncio.Lock()):
            known = self._known.get(collection.type, EMPTY)
            if known.revision < collection.revision:
                rows = await self._store.read(
                    *arcadedb.term_statistics(collection.type, after=known.revision)
                )
                known = await asyncio.to_thread(advanced, known, rows, collection.revision)
                self._known[collection.type] = known
        return known

    async def fold(self, collection: Collection) -> bool:
        """Fold the log of a collection if it is long enough; return whether it was folded."""
        rows = await self._store.read(*arcadedb.term_statistics(collection.type, after=0))
        if len(rows) < _FOLD_AFTER:
            return False
        merged = await asyncio.to_thread(advanced, EMPTY, rows, rows[-1]["seq"])
        answer = await self._store.write(
            *arcadedb.fold_term_statistics(
                collection.type,
                up_to=merged.revision,
                count=len(rows),
                merged=base64.b64encode(merged.statistics.to_bytes()).decode("ascii"),
            )
        )
        log.debug("folded %d records of %s", len(rows), collection.type)
        return bool(answer["deleted"] == len(rows))

    def forget(self, chunk_type: str) -> None:
        """Drop the cached statistics of a generation."""
        self._known.pop(chunk_type, None)
        self._reading.pop(chunk_type, None)


def advanced(known: Snapshot, rows: Sequence[Mapping[str, Any]], revision: int) -> Snapshot:
    """Apply log records, in order of their revision, to a snapshot.

    A base record replaces everything up to its revision.
    """
    bases = [place for place, row in enumerate(rows) if row.get("base")]
    first = bases[-1] if bases else 0
    start = EMPTY.statistics if bases else known.statistics
    added = [
        TermStatistics.from_bytes(base64.b64decode(row["added"]))
        for row in rows[first:]
        if row.get("added")
    ]
    removed = [
        TermStatistics.of_chunks(row["removed"], row["removedLengths"])
        for row in rows[first:]
        if row.get("removed")
    ]
    latest = max((row["seq"] for row in rows), default=0)
    return Snapshot(start.merged(added).less(removed), max(revision, latest, known.revision))
