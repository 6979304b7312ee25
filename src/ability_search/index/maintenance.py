"""Background maintenance of collections after writes.

Every step may be skipped, interrupted at any moment or repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ability_search.collection import Collection
from ability_search.errors import SearchError
from ability_search.filters.tree import Field, Not, OneOf
from ability_search.index.calibration import SAMPLE, calibration_of
from ability_search.index.generations import Generations
from ability_search.index.index_ports import IndexPorts
from ability_search.index.verification import sampled
from ability_search.store.pages import read_pages
from ability_search.store.records import WeightedChunk
from ability_search.store.statistics_cache import StatisticsCache
from ability_search.store.values import KINDS_LAYER, Chunks, Columns, Patch, Read
from ability_search.text.bm25 import reweighted

log = logging.getLogger(__name__)

_DRIFT = 1.5
"""Factor by which the average length may be off before the weights are recomputed."""
_GROWN = 2
"""Factor by which the number of chunks may have changed before cosines are measured again."""
_FEW = 50
"""Number of chunks below which the average length is not reliable."""
_PAGE = 500
_WEIGHTED = Columns(("chunk_id", "terms", "weights", "lengths", "average_length", "duplicate_of"))
_STALE_AFTER = 6 * 3600 * 1000
"""Milliseconds after which unfinished work counts as abandoned."""
_SWEEP_EVERY = 600 * 1000


@dataclass(slots=True, eq=False)
class Maintenance:
    """Maintains collections in the background, with one task per collection.

    Args:
        ports: The ports and settings of indexing.
        statistics_cache: The term statistics.
        generations: Drops abandoned generations.
    """

    ports: IndexPorts
    statistics_cache: StatisticsCache
    generations: Generations
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _due: set[str] = field(default_factory=set)
    _inspected: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Generations and average lengths for which there are no outdated weights. Writes add none,
    so that only an interrupted recomputation leaves some; the check reads every chunk."""
    _next_sweep: int = 0

    def schedule(self, record: str) -> None:
        """Maintain a collection in the background; if that is running, do it once more after."""
        self._due.add(record)
        if record not in self._running:
            task = asyncio.create_task(self._maintain(record), name=f"maintain {record}")
            self._running[record] = task

    async def after_write(self, record: str) -> None:
        """Calibrate a collection, so that its next query has its scores; do the rest later."""
        try:
            collection = await self.ports.registry.find(record)
            if collection is not None:
                await self._calibrate(collection)
        except SearchError as exc:
            log.warning("calibration of %s postponed: %s", record, exc)
        self.schedule(record)

    async def close(self) -> None:
        """Cancel the running tasks."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until no task is running."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _maintain(self, record: str) -> None:
        try:
            while record in self._due:
                self._due.discard(record)
                try:
                    await self.maintain(record)
                except SearchError as exc:
                    log.warning("maintenance of %s postponed: %s", record, exc)
        finally:
            del self._running[record]

    async def maintain(self, record: str) -> None:
        """Maintain a collection now.

        Raises:
            DatabaseUnavailable: if the maintenance must be postponed.
        """
        collection = await self.ports.registry.reload(record)
        if collection is None:
            self._inspected.pop(record, None)
            return
        await self.statistics_cache.fold(collection)
        collection = await self._renew_weights(collection)
        collection = await self._calibrate(collection)
        self.ports.registry.learn(record, await self.ports.store.settle(collection))
        if self.ports.now() >= self._next_sweep:
            self._next_sweep = self.ports.now() + _SWEEP_EVERY
            await self.generations.sweep(before=self.ports.now() - _STALE_AFTER)

    async def _calibrate(self, collection: Collection) -> Collection:
        """Measure the cosines of a collection that has grown or shrunk since."""
        chunks, before = collection.chunks, collection.calibrated
        if chunks == before or before / _GROWN < chunks < before * _GROWN:
            return collection
        sample = await sampled(self.ports.store, collection, SAMPLE)
        found = await asyncio.to_thread(calibration_of, sample)
        return await self.ports.registry.update(collection, **found._asdict(), calibrated=chunks)

    async def _renew_weights(self, collection: Collection) -> Collection:
        """Recompute the term weights if the average length differs too much from the assumed one.

        An interrupted recomputation is completed.
        """
        actual = (await self.statistics_cache.of(collection)).average_length
        assumed = collection.average_length
        if collection.chunks >= _FEW and not actual / _DRIFT <= assumed <= actual * _DRIFT:
            collection = await self.ports.registry.update(
                collection, average_length=round(actual, 2)
            )
        state = (collection.type, collection.average_length)
        if self._inspected.get(collection.name) == state:
            return collection
        layers = ("", KINDS_LAYER) if collection.kind_chunks else ("",)
        if renewed := sum([await self._renew(collection, layer) for layer in layers]):
            log.info("recomputed the term weights of %d chunks in %s", renewed, collection.name)
        self._inspected[collection.name] = state
        return collection

    async def _renew(self, collection: Collection, layer: str) -> int:
        """Recompute outdated term weights; return the number of chunks.

        Once more if there were any, for those that could not be written.
        """
        current = OneOf(Field("average_length"), (collection.average_length,))
        of = Chunks(layer, filter=Not(current))
        renewed, before = 0, -1
        while renewed != before:
            before = renewed
            ask = Read(of, collection, _WEIGHTED, _PAGE)
            async for page in read_pages(self.ports.store, ask):
                chunks = [WeightedChunk(**row) for row in page.items]
                patches = await asyncio.to_thread(_reweighted, chunks, collection, layer)
                await self.ports.store.patch(collection, patches)
                renewed += len(chunks)
        return renewed


def _reweighted(chunks: Sequence[WeightedChunk], collection: Collection, layer: str) -> list[Patch]:
    """Return the weights of chunks for the average length of their collection.

    A chunk that became a duplicate, or no longer is one, has its weights elsewhere.
    """
    average = collection.average_length
    return [
        Patch(
            chunk.chunk_id,
            {
                "weights": reweighted(
                    chunk.terms,
                    chunk.weights,
                    lengths=chunk.lengths,
                    old_average=chunk.average_length,
                    new_average=average,
                    k1=collection.bm25_k1,
                    b=collection.bm25_b,
                ),
                "average_length": average,
            },
            layer,
            {"average_length": chunk.average_length, "duplicate_of": chunk.duplicate_of},
        )
        for chunk in chunks
    ]
