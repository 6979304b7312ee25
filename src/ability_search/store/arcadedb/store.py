"""The store in ArcadeDB."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ability_search.bounded_batches import batches
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, GenerationGone, StatementRefused
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.store import records
from ability_search.store.arcadedb import database_schema, write
from ability_search.store.arcadedb.core import Scripts, Statement, kind_type
from ability_search.store.arcadedb.database import generation_gone
from ability_search.store.arcadedb.index_search import IndexRequest, finds_all
from ability_search.store.arcadedb.record_sql import RecordSql
from ability_search.store.arcadedb.rows import collection_in
from ability_search.store.arcadedb.search import SearchStatement, complete
from ability_search.store.records import Represented, moved
from ability_search.store.stored_collections import change_collection, read_collection
from ability_search.store.values import Columns, Patch

log = logging.getLogger(__name__)

T = TypeVar("T")

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
_FEW = 16
"""Chunks that are converted to rows without a thread."""
_MESSAGE_BYTES = 4 << 20


class ArcadeStore(RecordSql):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database.

    Args:
        scripts: Runs scripts over the ``arcade-*`` tools.
        message_bytes: Maximum bytes of chunks in one statement; a larger source is staged in parts.
        beam: Minimum beam width of searches of a vector graph.
        scan_below: Number of chunks from which a vector graph is built; fewer are compared.
        now: Returns the time in epoch milliseconds.
        meter: Counts repeated writes.
    """

    def __init__(
        self,
        scripts: Scripts,
        *,
        message_bytes: int = _MESSAGE_BYTES,
        beam: int = 0,
        scan_below: int = 1,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        meter: Meter = UNMETERED,
    ) -> None:
        super().__init__(scripts, meter=meter)
        self._message_bytes = message_bytes
        self._beam = beam
        self._scan_below = scan_below
        self._now = now
        self._next_sweep = 0

    # Generations

    async def create_generation(self, collection: Collection) -> None:
        await self.write_first(
            database_schema.create_generation(collection.type, dimensions=collection.dimensions)
        )

    async def generations(self) -> list[str]:
        rows = await self.fetch(Statement("SELECT name FROM schema:types"))
        names = dict.fromkeys(_BESIDE_CHUNKS.sub("Chunk", row["name"]) for row in rows)
        return [name for name in names if name.startswith("Chunk_")]

    async def drop_generation(self, generation: str) -> None:
        await self.write_first(database_schema.drop_generation(generation))

    # Searches

    async def search(
        self,
        collection: Collection,
        searches: Sequence[records.Search],
        columns: Columns,
        *,
        ahead: records.Ahead | None = None,
        consistent: bool = True,
    ) -> records.Searched:
        if finds_all(collection, searches, columns, scan_below=self._scan_below):
            request = IndexRequest(collection, searches, columns, ahead, beam=self._beam)

            async def find() -> Mapping[str, Any] | None:
                with generation_gone(collection.type):
                    return await self._scripts.search(request.input)

            found = await _repeated(
                find, lambda answer: answer is None or not consistent or request.complete(answer)
            )
            if found is not None:
                return request.searched(found)
        asked = SearchStatement(
            collection, searches, columns, ahead, beam=self._beam, scan_below=self._scan_below
        )
        again = consistent and any(each.within is None for each in searches)
        answer = await _repeated(
            lambda: self.fetch(asked.statement, collection.type),
            lambda answer: not again or complete(answer),
        )
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
            old = "BEGIN; DELETE FROM Staging WHERE createdAt < :cutoff; COMMIT;"
            await self.write_first(Statement(old, {"cutoff": now - _STALE_AFTER}))
        return collection

    async def _build_graph(self, collection: Collection, chunk_type: str) -> None:
        """Build a vector graph now, so that no query has to wait for it."""
        any_vector = [1.0] + [0.0] * (collection.dimensions - 1)
        nearest = f"vectorNeighbors('{chunk_type}[embedding]', :vector, 1)"
        text = f"SELECT chunkId FROM (SELECT expand({nearest}))"
        statement = Statement(text, {"vector": any_vector})
        for left in reversed(range(_BUILDS)):
            try:
                await self.fetch(statement, collection.type)
                return
            except DatabaseUnavailable as exc:
                refused = isinstance(exc, StatementRefused) and exc.reason != "timeout"
                if refused or isinstance(exc, GenerationGone) or not left:
                    raise
            await asyncio.sleep(_BUILD_PAUSE)

    # Replacement

    async def replace(
        self, collection: Collection, replacement: records.Replacement
    ) -> records.Replaced | None:
        chunks, kinds = await self._parts(replacement.chunks)
        if types := database_schema.create_parts(collection, replacement, kinds=kinds.count > 0):
            await self.write(types)
        try:
            copies = await self._copies(collection, replacement) if collection.duplicates else {}
            make = partial(
                write.replace_sources, collection, replacement, chunks, kinds, copies, self._now()
            )
            answer = await self.write(await _of_chunks(chunks.count + kinds.count, make))
        except (StatementRefused, GenerationGone):
            # The errors for types being dropped vary, so the record decides.
            current = await read_collection(self, collection.name)
            if current is not None and current.type == collection.type:
                raise
            return None
        if answer["revision"] is None:
            return None
        inserted, stored = answer["inserted"], chunks.count + kinds.count
        if inserted != stored:
            raise StatementRefused("other", f"{inserted} of {stored} chunks were stored")
        changed = collection_in(answer["collection"])
        assert changed is not None
        return records.Replaced(changed, answer["deleted"], inserted, answer["replaced"])

    async def _copies(
        self, collection: Collection, replacement: records.Replacement
    ) -> Mapping[str, Sequence[str]]:
        """Return the duplicates of chunks that are replaced, by their next stand-in."""
        new = [each for own in replacement.chunks for each in own if each.of is None]
        keys = list({each.vector_key for each in new if each.vector_key})
        found = await self.fetch(
            write.represented(collection.type, replacement.sources, keys), collection.type
        )
        old = {row["chunkId"]: row.get("vectorKey") for row in found["old"]}
        firsts = {row["chunkId"]: row for row in found["firsts"]}
        rules = {row["source"]: row.get("dedupThreshold") for row in found["rules"]}
        groups = [
            Represented(
                old[row["duplicateOf"]],
                [row["first"], *(each for each in row["copies"] if each != row["first"])],
                rules.get(first.get("source")),
                first.get("embedding"),
            )
            for row in found["kept"]
            for first in [firsts.get(row["first"], {})]
        ]
        return moved(groups, new)

    async def _parts(
        self, per_source: Sequence[Sequence[records.ChunkRecord]]
    ) -> tuple[write.Stored, write.Stored]:
        """Return ordinary chunks and chunks of kinds; stage what does not fit in the statement."""
        chunks, kinds = write.Stored(), write.Stored()
        room = self._message_bytes
        for own in per_source:
            stored = kinds if own and own[0].of else chunks
            size = await _of_chunks(len(own), partial(_bytes, own))
            if size <= room:
                stored.chunks += own
                room -= size
            else:
                token, bound = secrets.token_hex(8), self._message_bytes
                for part in batches(own, records.chunk_bytes, most=len(own), most_bytes=bound):
                    await self.write(await _of_chunks(len(part), partial(write.stage, token, part)))
                stored.staged.append(token)
                stored.staged_count += len(own)
        return chunks, kinds

    async def patch(self, collection: Collection, patches: Sequence[Patch]) -> None:
        if patches:
            with generation_gone(collection.type):
                await self.write(write.patch(collection.type, patches))


async def _repeated(ask: Callable[[], Awaitable[T]], complete: Callable[[T], bool]) -> T:
    """Return the first answer that is complete, or after some pauses the last one."""
    for pause in _PAUSES:
        answer = await ask()
        if complete(answer):
            return answer
        await asyncio.sleep(pause)
    return await ask()


async def _of_chunks(number: int, compute: Callable[[], T]) -> T:
    """Return what is computed of chunks; of many in a thread, as 500 take some 10 ms."""
    return compute() if number <= _FEW else await asyncio.to_thread(compute)


def _bytes(chunks: Sequence[records.ChunkRecord]) -> int:
    return sum(map(records.chunk_bytes, chunks))
