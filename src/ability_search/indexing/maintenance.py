"""Background maintenance of collections after writes.

Every step may be skipped, interrupted at any moment or repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, SearchError, StatementRefused
from ability_search.generations import Generations
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.text.bm25 import reweighted

log = logging.getLogger(__name__)

_DRIFT = 1.5
"""Factor by which the average length may be off before the weights are recomputed."""
_FEW = 50
"""Number of chunks below which the average length is not reliable."""
_PAGE = 500
_STALE_AFTER = 6 * 3600 * 1000
"""Milliseconds after which unfinished work counts as abandoned."""
_SWEEP_EVERY = 600 * 1000
_BUILDS = 10
_BUILD_PAUSE = 60.0
"""Seconds between checks of a graph whose build takes longer than a statement may."""


class Maintenance:
    """Maintains collections in the background, with one task per collection.

    Args:
        store: The database.
        registry: The registry of collections.
        statistics_cache: The term statistics.
        generations: Drops abandoned generations.
        scan_below: Number of chunks below which a scan is as good as a graph.
        now: Returns the time in epoch milliseconds.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        statistics_cache: StatisticsCache,
        generations: Generations,
        *,
        scan_below: int,
        now: Callable[[], int],
    ) -> None:
        self._store = store
        self._registry = registry
        self._statistics_cache = statistics_cache
        self._generations = generations
        self._scan_below = scan_below
        self._now = now
        self._running: dict[str, asyncio.Task[None]] = {}
        self._due: set[str] = set()
        self._inspected: dict[str, tuple[str, int, float]] = {}
        """States of collections without outdated weights, since the check reads every chunk."""
        self._next_sweep = 0

    def schedule(self, record: str) -> None:
        """Maintain a collection in the background; if that is running, do it once more after."""
        self._due.add(record)
        if record not in self._running:
            task = asyncio.create_task(self._look_after(record), name=f"maintain {record}")
            self._running[record] = task

    async def close(self) -> None:
        """Cancel the running tasks."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until no task is running."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _look_after(self, record: str) -> None:
        try:
            while record in self._due:
                self._due.discard(record)
                try:
                    await self.tend(record)
                except SearchError as exc:
                    log.warning("maintenance of %s postponed: %s", record, exc)
        finally:
            del self._running[record]

    async def tend(self, record: str) -> None:
        """Maintain a collection now.

        Raises:
            DatabaseUnavailable: if the maintenance must be postponed.
        """
        collection = await self._registry.reload(record)
        if collection is None:
            self._inspected.pop(record, None)
            return
        await self._statistics_cache.fold(collection)
        collection = await self._renew_weights(collection)
        await self._build_graph(collection)
        if self._now() >= self._next_sweep:
            self._next_sweep = self._now() + _SWEEP_EVERY
            await self._sweep(before=self._now() - _STALE_AFTER)

    async def _sweep(self, *, before: int) -> None:
        """Remove what crashed writers left: staged chunks and incomplete generations."""
        await self._store.write(*arcadedb.discard_staged(before=before))
        await self._generations.sweep(before=before)

    async def _build_graph(self, collection: Collection) -> None:
        """Let the engine build the vector graph now, so that no query has to wait for it."""
        if not collection.graph and collection.chunks >= self._scan_below:
            await self._build(collection.type, collection.dimensions)
            collection = await self._registry.update(collection, graph=True)
            log.info("built the vector graph of %s, %d chunks", collection.name, collection.chunks)
        if not collection.aspect_graph and collection.aspects >= self._scan_below:
            await self._build(arcadedb.aspect_type(collection.type), collection.dimensions)
            await self._registry.update(collection, aspect_graph=True)

    async def _build(self, chunk_type: str, dimensions: int) -> None:
        probe = [1.0] + [0.0] * (dimensions - 1)
        for left in reversed(range(_BUILDS)):
            try:
                await self._store.read(*arcadedb.build_graph(chunk_type, probe))
                return
            except DatabaseUnavailable as exc:
                refused = isinstance(exc, StatementRefused) and exc.reason != "timeout"
                if refused or not left:
                    raise
                await asyncio.sleep(_BUILD_PAUSE)

    async def _renew_weights(self, collection: Collection) -> Collection:
        """Recompute the term weights if the average length differs too much from the assumed one.

        An interrupted recomputation is completed.
        """
        actual = (await self._statistics_cache.of(collection)).average_length
        assumed = collection.average_length
        if collection.chunks >= _FEW and not actual / _DRIFT <= assumed <= actual * _DRIFT:
            collection = await self._registry.update(collection, average_length=round(actual, 2))
        state = (collection.type, collection.revision, collection.average_length)
        if self._inspected.get(collection.name) == state:
            return collection
        renewed = await self._renew_type(collection.type, collection)
        if collection.aspects:
            aspects = arcadedb.aspect_type(collection.type)
            renewed += await self._renew_type(aspects, collection)
        if renewed:
            log.info("recomputed the term weights of %d chunks in %s", renewed, collection.name)
        self._inspected[collection.name] = state
        return collection

    async def _renew_type(self, chunk_type: str, collection: Collection) -> int:
        """Recompute outdated term weights of one type; return the number of chunks."""
        renewed = 0
        while rows := await self._store.read(
            *arcadedb.outdated_weights(
                chunk_type, average_length=collection.average_length, limit=_PAGE
            )
        ):
            changes = [_weighed(row, collection) for row in rows]
            await self._store.write(
                *arcadedb.set_weights(
                    chunk_type, average_length=collection.average_length, changes=changes
                )
            )
            renewed += len(rows)
        return renewed


def _weighed(row: Mapping[str, Any], collection: Collection) -> dict[str, Any]:
    """Return the change that adapts a chunk's weights to its collection's average length."""
    weights = reweighted(
        row["terms"],
        row["weights"],
        lengths=row["lengths"],
        old_average=row["averageLength"],
        new_average=collection.average_length,
        k1=collection.bm25_k1,
        b=collection.bm25_b,
    )
    return {
        "chunkId": row["chunkId"],
        "duplicateOf": row.get("duplicateOf"),
        "weights": weights,
    }
