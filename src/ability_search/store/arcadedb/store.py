"""The store in ArcadeDB."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, GenerationGone, StatementRefused
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.store.arcadedb import write
from ability_search.store.arcadedb.core import Scripts, Statement, kind_type
from ability_search.store.arcadedb.database import Database
from ability_search.store.arcadedb.index import MESSAGE_BYTES, IndexSql
from ability_search.store.arcadedb.schema import create_generation, drop_generation
from ability_search.store.arcadedb.search import SearchStatement, complete
from ability_search.store.records import Search, Searched
from ability_search.store.stored_collections import change_collection
from ability_search.store.values import Columns

log = logging.getLogger(__name__)

_BESIDE_CHUNKS = re.compile(r"^(Source|Link|Aspect)(?=_)")
"""The other types of a generation; it is named after the type of its chunks."""
_PAUSES = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Seconds to wait before each repeated search after a commit in progress was seen."""
_BUILDS = 10
_BUILD_PAUSE = 60.0
"""Seconds between checks of a graph whose build takes longer than a statement may."""
_STALE_AFTER = 6 * 3600 * 1000
"""Milliseconds after which staged chunks count as left behind."""
_SWEEP_EVERY = 600 * 1000


class GenerationSql(Database):
    """Generations, see :class:`.port.GenerationStore`."""

    async def create_generation(self, new: Collection) -> None:
        await self.write(create_generation(new.type, dimensions=new.dimensions), idempotent=True)

    async def generations(self) -> list[str]:
        rows = await self.rows(Statement("SELECT name FROM schema:types", {}))
        names = dict.fromkeys(_BESIDE_CHUNKS.sub("Chunk", row["name"]) for row in rows)
        return [name for name in names if name.startswith("Chunk_")]

    async def drop_generation(self, generation: str) -> None:
        await self.write(drop_generation(generation), idempotent=True)


class ArcadeStore(GenerationSql, IndexSql):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database.

    Args:
        scripts: Runs scripts over the ``arcade-*`` tools.
        message_bytes: Maximum bytes of chunks in one statement; a larger source is staged in parts.
        beam: Minimum beam width of searches of a vector graph.
        scan_below: Number of chunks from which a vector graph is built; fewer are compared.
        now: Returns the time in epoch milliseconds.
        meter: Counts retried replacements.
    """

    def __init__(
        self,
        scripts: Scripts,
        *,
        message_bytes: int = MESSAGE_BYTES,
        beam: int = 0,
        scan_below: int = 1,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        meter: Meter = UNMETERED,
    ) -> None:
        super().__init__(scripts, message_bytes=message_bytes, now=now, meter=meter)
        self._beam = beam
        self._scan_below = scan_below
        self._next_sweep = 0

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        first: int = 0,
        consistent: bool = True,
    ) -> Searched:
        asked = SearchStatement(
            collection, searches, columns, first=first, beam=self._beam, scan_below=self._scan_below
        )
        by_index = consistent and any(each.within is None for each in searches)
        for pause in (*_PAUSES, None):
            answer = await self.generation_read(collection.type, asked.statement)
            if pause is None or not by_index or complete(answer):
                break
            await asyncio.sleep(pause)
        return asked.searched(answer)

    async def settle(self, collection: Collection) -> Collection:
        for flag, chunk_type, chunks in (
            ("graph", collection.type, collection.chunks),
            ("kind_graph", kind_type(collection.type), collection.kind_chunks),
        ):
            if chunks >= self._scan_below and not getattr(collection, flag):
                await self._build_graph(collection, chunk_type)
                changed: dict[str, Any] = {flag: True}
                await self.commit([change_collection(collection, changed)])
                collection = replace(collection, **changed)
                log.info("built a vector graph of %s, %d chunks", collection.name, chunks)
        now = self._now()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_EVERY
            await self.write(write.discard_staged(before=now - _STALE_AFTER))
        return collection

    async def _build_graph(self, collection: Collection, chunk_type: str) -> None:
        """Build a vector graph now, so that no query has to wait for it."""
        any_vector = [1.0] + [0.0] * (collection.dimensions - 1)
        nearest = f"vectorNeighbors('{chunk_type}[embedding]', :vector, 1)"
        statement = Statement(
            f"SELECT chunkId FROM (SELECT expand({nearest}))", {"vector": any_vector}
        )
        for left in reversed(range(_BUILDS)):
            try:
                await self.generation_read(collection.type, statement)
                return
            except DatabaseUnavailable as exc:
                refused = isinstance(exc, StatementRefused) and exc.reason != "timeout"
                if refused or isinstance(exc, GenerationGone) or not left:
                    raise
            await asyncio.sleep(_BUILD_PAUSE)
