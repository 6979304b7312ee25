"""Documents and chunks of generations: replacement, pages of sources, checks, vectors, weights."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ability_search.bounded_batches import batches
from ability_search.collection import Collection
from ability_search.errors import GenerationGone, StatementRefused
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.store.arcadedb import rows, write
from ability_search.store.arcadedb.core import Scripts, Statement
from ability_search.store.arcadedb.database import outlast
from ability_search.store.arcadedb.record_rows import collection_in
from ability_search.store.arcadedb.record_sql import RecordSql
from ability_search.store.arcadedb.schema import create_child_index, create_kinds, create_links
from ability_search.store.records import ChunkRecord, Replaced, Replacement, chunk_bytes
from ability_search.store.stand_ins import Represented, moved
from ability_search.store.stored_collections import read_collection
from ability_search.store.values import Patch

Row = Mapping[str, Any]
T = TypeVar("T")
_FEW = 16
"""Chunks that are converted to rows without a thread."""
MESSAGE_BYTES = 4 << 20


class IndexSql(RecordSql):
    """Documents and chunks of generations, see :class:`.port.IndexStore`.

    Args:
        scripts: Runs scripts over the ``arcade-*`` tools.
        message_bytes: Maximum bytes of chunks in one statement; a larger source is staged in parts.
        now: Returns the time in epoch milliseconds.
        meter: Counts retried replacements.
    """

    def __init__(
        self,
        scripts: Scripts,
        *,
        message_bytes: int = MESSAGE_BYTES,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        meter: Meter = UNMETERED,
    ) -> None:
        super().__init__(scripts)
        self._message_bytes = message_bytes
        self._now = now
        self._meter = meter

    # Replacement

    async def replace(self, collection: Collection, replacement: Replacement) -> Replaced | None:
        chunks, kinds = await self._parts(replacement.chunks)
        await self._create_types(collection, replacement, kinds=kinds.count > 0)
        try:
            copies = await self._copies(collection, replacement) if collection.duplicates else {}
            statement = write.replace_sources(
                collection,
                replacement,
                chunks=chunks,
                kinds=kinds,
                copies=copies,
                now=self._now(),
            )
            answer = await self._insist(statement)
        except (StatementRefused, GenerationGone):
            # The errors for types being dropped vary, so the record decides.
            current = await read_collection(self, collection.name)
            if current is not None and current.type == collection.type:
                raise
            return None
        if answer["revision"] is None:
            return None
        inserted, stored = int(answer["inserted"] or 0), chunks.count + kinds.count
        if inserted != stored:
            raise StatementRefused("other", f"{inserted} of {stored} chunks were stored")
        changed = collection_in(answer["collection"])
        assert changed is not None
        return Replaced(
            changed,
            deleted=int(answer["deleted"] or 0),
            inserted=inserted,
            replaced=int(answer["replaced"] or 0),
        )

    async def _copies(
        self, collection: Collection, replacement: Replacement
    ) -> Mapping[str, Sequence[str]]:
        """Return the duplicates of chunks that are replaced, by their next stand-in."""
        new = [each for own in replacement.chunks for each in own if each.of is None]
        keys = list({each.vector_key for each in new if each.vector_key})
        found = await self.generation_read(
            collection.type, write.represented(collection.type, replacement.sources, keys)
        )
        old = {row["chunkId"]: row.get("vectorKey") for row in found["old"]}
        firsts = {row["chunkId"]: row for row in found["firsts"]}
        rules = {row["source"]: row.get("dedupThreshold") for row in found["rules"]}
        groups = []
        for row in found["kept"]:
            first = firsts.get(row["first"], {})
            groups.append(
                Represented(
                    row["duplicateOf"],
                    old[row["duplicateOf"]],
                    [row["first"], *(each for each in row["copies"] if each != row["first"])],
                    rules.get(first.get("source")),
                    first.get("embedding"),
                )
            )
        return moved(groups, new)

    async def _parts(
        self, per_source: Sequence[Sequence[ChunkRecord]]
    ) -> tuple[write.Rows, write.Rows]:
        """Return ordinary chunks and chunks of kinds; stage what does not fit in the statement."""
        inline: dict[bool, list[ChunkRecord]] = {False: [], True: []}
        tokens: dict[bool, list[str]] = {False: [], True: []}
        staged = {False: 0, True: 0}
        room = self._message_bytes
        for own in per_source:
            size = await _of_chunks(_bytes, own)
            of_kind = bool(own and own[0].of)
            if size <= room:
                inline[of_kind] += own
                room -= size
            else:
                tokens[of_kind].append(await self._stage(own))
                staged[of_kind] += len(own)
        chunks, kinds = [
            write.Rows(await _of_chunks(_rows, inline[of_kind]), tokens[of_kind], staged[of_kind])
            for of_kind in (False, True)
        ]
        return chunks, kinds

    async def _stage(self, own: Sequence[ChunkRecord]) -> str:
        """Stage the chunks of a source in messages of bounded size; return their token."""
        token = secrets.token_hex(8)
        sized = batches(own, chunk_bytes, most=len(own), most_bytes=self._message_bytes)
        for part in sized:
            await self._insist(write.stage_rows(token, await _of_chunks(_rows, part)))
        return token

    async def _create_types(
        self, collection: Collection, replacement: Replacement, *, kinds: bool
    ) -> None:
        """Create what links, kinds and documents of others need and does not exist yet."""
        wanted = []
        if replacement.links and not collection.links:
            wanted.append(create_links(collection.type))
        if replacement.nested and not collection.nested:
            wanted.append(create_child_index(collection.type))
        if kinds and not collection.kind_chunks:
            wanted.append(create_kinds(collection.type, dimensions=collection.dimensions))
        for types in wanted:
            await self._insist(types)

    async def _insist(self, statement: Statement) -> Any:
        """Run a write; it deletes before it inserts: duplicates are from another transaction."""
        run = partial(self._scripts.write, *statement)
        return await outlast(run, "conflict", "duplicate", meter=self._meter)

    async def patch(self, collection: Collection, patches: Sequence[Patch]) -> None:
        if patches:
            statement = write.patch(collection.type, patches)
            await self.generation_write(collection.type, statement)


async def _of_chunks(
    compute: Callable[[Sequence[ChunkRecord]], T], chunks: Sequence[ChunkRecord]
) -> T:
    """Return what is computed of chunks; of many in a thread, as 500 take some 10 ms."""
    return compute(chunks) if len(chunks) <= _FEW else await asyncio.to_thread(compute, chunks)


def _rows(chunks: Sequence[ChunkRecord]) -> list[dict[str, Any]]:
    return list(map(rows.chunk_row, chunks))


def _bytes(chunks: Sequence[ChunkRecord]) -> int:
    return sum(map(chunk_bytes, chunks))
