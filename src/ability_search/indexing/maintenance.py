"""What an index needs after it was written to, done behind the callers' backs.

All of it is safe to leave out, to stop at any moment and to do twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, SearchError, StatementRefused
from ability_search.generations import Generations
from ability_search.ports import Store
from ability_search.ranking.bm25 import reweighted
from ability_search.vocabulary import Vocabulary

log = logging.getLogger(__name__)

_DRIFT = 1.5
"""Factor by which the average length may be off before the weights are renewed."""
_FEW = 50
"""Chunks below which an average says little."""
_PAGE = 500
_STALE_AFTER = 6 * 3600 * 1000
"""Milliseconds after which unfinished work has been given up."""
_SWEEP_EVERY = 600 * 1000
_BUILDS = 10
_BUILD_PAUSE = 60.0
"""Seconds between looks at a graph that takes longer to build than a statement may."""


class Maintenance:
    """Keeps collections in shape, one at a time each.

    Args:
        store: The database.
        catalogue: Knows the collections.
        vocabulary: Knows their terms.
        generations: Drops what is left behind.
        scan_below: Chunks below which a scan is as good as a graph.
        now: The time in epoch milliseconds.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        vocabulary: Vocabulary,
        generations: Generations,
        *,
        scan_below: int,
        now: Callable[[], int],
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._vocabulary = vocabulary
        self._generations = generations
        self._scan_below = scan_below
        self._now = now
        self._running: dict[str, asyncio.Task[None]] = {}
        self._due: set[str] = set()
        self._inspected: dict[str, tuple[str, int, float]] = {}
        """What was seen to have no outdated weights, which takes a look at every chunk."""
        self._next_sweep = 0

    def schedule(self, record: str) -> None:
        """Look after a collection soon; once more afterwards if it is being done already."""
        self._due.add(record)
        if record not in self._running:
            task = asyncio.create_task(self._look_after(record), name=f"maintain {record}")
            self._running[record] = task

    async def close(self) -> None:
        """Stop what is running."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until nothing is running."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _look_after(self, record: str) -> None:
        try:
            while record in self._due:
                self._due.discard(record)
                try:
                    await self.tend(record)
                except SearchError as exc:
                    log.warning("maintenance of %s put off: %s", record, exc)
        finally:
            del self._running[record]

    async def tend(self, record: str) -> None:
        """Look after a collection now.

        Raises:
            DatabaseUnavailable: if it has to be put off.
        """
        collection = await self._catalogue.reload(record)
        if collection is None:
            self._inspected.pop(record, None)
            return
        await self._vocabulary.fold(collection)
        collection = await self._renew_weights(collection)
        await self._build_graph(collection)
        if self._now() >= self._next_sweep:
            self._next_sweep = self._now() + _SWEEP_EVERY
            await self._sweep(before=self._now() - _STALE_AFTER)

    async def _sweep(self, *, before: int) -> None:
        """Remove what writers that died left behind: staged chunks, half-built generations."""
        await self._store.write(*statements.discard_staged(before=before))
        await self._generations.sweep(before=before)

    async def _build_graph(self, collection: Collection) -> None:
        """Have the engine build the vector graph, so that no query has to wait for it."""
        if not collection.graph and collection.chunks >= self._scan_below:
            await self._build(collection.type, collection.dimensions)
            collection = await self._catalogue.update(collection, graph=True)
            log.info("built the vector graph of %s, %d chunks", collection.name, collection.chunks)
        if not collection.aspect_graph and collection.aspects >= self._scan_below:
            await self._build(statements.aspect_type(collection.type), collection.dimensions)
            await self._catalogue.update(collection, aspect_graph=True)

    async def _build(self, chunk_type: str, dimensions: int) -> None:
        probe = [1.0] + [0.0] * (dimensions - 1)
        for left in reversed(range(_BUILDS)):
            try:
                await self._store.read(*statements.build_graph(chunk_type, probe))
                return
            except DatabaseUnavailable as exc:
                refused = isinstance(exc, StatementRefused) and exc.reason != "timeout"
                if refused or not left:
                    raise
                await asyncio.sleep(_BUILD_PAUSE)

    async def _renew_weights(self, collection: Collection) -> Collection:
        """Weigh the terms anew if texts have become longer or shorter than was assumed.

        A renewal that was interrupted is completed.
        """
        actual = (await self._vocabulary.of(collection)).average_length
        assumed = collection.average_length
        if collection.chunks >= _FEW and not actual / _DRIFT <= assumed <= actual * _DRIFT:
            collection = await self._catalogue.update(collection, average_length=round(actual, 2))
        state = (collection.type, collection.revision, collection.average_length)
        if self._inspected.get(collection.name) == state:
            return collection
        renewed = await self._renew_type(collection.type, collection)
        if collection.aspects:
            aspects = statements.aspect_type(collection.type)
            renewed += await self._renew_type(aspects, collection)
        if renewed:
            log.info("weighed the terms of %d chunks in %s anew", renewed, collection.name)
        self._inspected[collection.name] = state
        return collection

    async def _renew_type(self, chunk_type: str, collection: Collection) -> int:
        """Weigh the terms of one type's chunks anew; how many those were."""
        renewed = 0
        while rows := await self._store.read(
            *statements.outdated_weights(
                chunk_type, average_length=collection.average_length, limit=_PAGE
            )
        ):
            changes = [_weighed(row, collection) for row in rows]
            await self._store.write(
                *statements.set_weights(
                    chunk_type, average_length=collection.average_length, changes=changes
                )
            )
            renewed += len(rows)
        return renewed


def _weighed(row: Mapping[str, Any], collection: Collection) -> dict[str, Any]:
    """Return the change of a chunk's weights to the average length of its collection."""
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
