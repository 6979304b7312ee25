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
from ability_search.errors import DatabaseUnavailable, GenerationGone, StatementRefused, TooLarge
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.store.arcadedb import rows, verification, write
from ability_search.store.arcadedb.core import Scripts, Statement, kind_type
from ability_search.store.arcadedb.database import MISSING, outlast
from ability_search.store.arcadedb.record_sql import RecordSql, collection_in, read_of
from ability_search.store.arcadedb.schema import create_child_index, create_kinds, create_links
from ability_search.store.arcadedb.search import build_graph, nearest
from ability_search.store.records import (
    ChunkRecord,
    ChunkScores,
    Neighbour,
    Passage,
    Read,
    Replaced,
    Replacement,
    SourceRecord,
    VectorCheck,
    VectorPlaces,
    WeightedChunk,
    chunk_bytes,
)
from ability_search.store.stand_ins import Represented, moved
from ability_search.store.stored_collections import read_collection

Row = Mapping[str, Any]
T = TypeVar("T")

_BUILDS = 10
_BUILD_PAUSE = 60.0
"""Seconds between checks of a graph whose build takes longer than a statement may."""
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

    async def discard_staged(self, *, before: int) -> None:
        await self.write(write.discard_staged(before=before))

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

    # Sources

    async def content_hashes(
        self, collection: Collection, sources: Sequence[str]
    ) -> Read[Mapping[str, str]]:
        answer = await self.generation_read(
            collection.type, write.source_hashes(collection.name, collection.type, sources)
        )
        hashes = {row["source"]: row["contentHash"] for row in answer["sources"]}
        return read_of(answer, hashes)

    async def sources(
        self,
        generation: str,
        *,
        after: str,
        limit: int,
        files: bool = False,
        children: bool = True,
    ) -> list[str]:
        statement = write.list_sources(
            generation, after=after, limit=limit, files=files, children=children
        )
        found = await self.generation_read(generation, statement)
        return [row["source"] for row in found]

    async def documents_of(self, generation: str, sources: Sequence[str]) -> list[str]:
        found = await self.generation_read(generation, write.child_sources(generation, sources))
        return [row["source"] for row in found]

    async def source_records(
        self, generation: str, *, after: str, limit: int
    ) -> list[SourceRecord]:
        statement = write.source_records(generation, after=after, limit=limit)
        try:
            found = await self.generation_read(generation, statement)
        except TooLarge:
            if limit == 1:
                raise
            return await self.source_records(generation, after=after, limit=limit // 2)
        return list(map(rows.source_record, found))

    async def source_records_named(
        self, generation: str, sources: Sequence[str]
    ) -> list[SourceRecord]:
        statement = verification.sources_named(generation, sources)
        return list(map(rows.source_record, await self.generation_read(generation, statement)))

    async def source_passages(
        self, generation: str, source: str, *, kinds: bool = False
    ) -> list[Passage]:
        statement = write.source_passages(_chunk_type(generation, kinds=kinds), source)
        return list(map(rows.passage, await self.generation_read(generation, statement)))

    async def compare_sources(
        self, generation: str, other: str, *, after: str, limit: int
    ) -> tuple[list[tuple[str, str]], dict[str, str | None]]:
        statement = verification.compare_sources(generation, other, after=after, limit=limit)
        answer = await self.generation_read(generation, statement)
        return (
            [(row["source"], row["contentHash"]) for row in answer["live"]],
            {row["source"]: row.get("origin") for row in answer["built"]},
        )

    async def count_sources(self, generation: str) -> tuple[int, int]:
        counted = await self.generation_read(generation, verification.count_sources(generation))
        return counted["sources"], counted["chunks"]

    # Checks

    async def check_vectors(
        self, generation: str, *, kinds: bool, dimensions: int, after: str, limit: int
    ) -> VectorCheck:
        page = await self.generation_read(
            generation,
            verification.check_vectors(
                _chunk_type(generation, kinds=kinds),
                dimensions=dimensions,
                after=after,
                limit=limit,
            ),
        )
        return VectorCheck(page["last"], page["checked"], page["unfit"])

    async def sample_chunks(self, generation: str, *, limit: int) -> list[WeightedChunk]:
        statement = verification.sample_chunks(generation, limit=limit)
        return list(map(_weighted, await self.generation_read(generation, statement)))

    async def probe_chunks(
        self, generation: str, *, newest: int, others: int, after: str
    ) -> list[WeightedChunk]:
        answer = await self.generation_read(
            generation,
            verification.some_chunks(generation, newest=newest, others=others, after=after),
        )
        return list(map(_weighted, answer["newest"] + answer["others"]))

    # Vectors

    async def nearest(
        self,
        generation: str,
        vectors: Sequence[Sequence[float]],
        *,
        limit: int,
        beam: int,
        exact: bool,
    ) -> list[list[Neighbour]]:
        if not vectors:
            return []
        answer = await self.generation_read(
            generation, nearest(generation, vectors, limit=limit, beam=beam, exact=exact)
        )
        return [
            [
                Neighbour(row["chunkId"], row["source"], row["createdAt"], row["cosine"])
                for row in answer[f"n{place}"]
            ]
            for place in range(len(vectors))
        ]

    async def vector_places(
        self, model: str, record: str, *, dimensions: int | None, limit: int
    ) -> VectorPlaces:
        try:
            found = await self._scripts.read(*write.vector_places(model, record, limit=limit))
        except StatementRefused as exc:
            if exc.reason not in MISSING:
                raise
            return VectorPlaces((), (), (), new=True)

        def places(name: str) -> list[tuple[str, bool]]:
            return [
                (row["type"], kinds)
                for row in found[name]
                if dimensions in (None, row["dimensions"])
                for kinds in ((False, True) if row.get("aspects") else (False,))
            ]

        return VectorPlaces(places("own"), places("live"), places("others"))

    async def stored_vectors(
        self, places: Sequence[tuple[str, bool]], keys: Sequence[str]
    ) -> list[dict[str, Sequence[float]]]:
        if not places:
            return []
        types = [_chunk_type(generation, kinds=kinds) for generation, kinds in places]
        answer = await self.generation_read(places[0][0], write.known_vectors(types, keys))
        return [
            {row["vectorKey"]: row["vector"] or () for row in answer[f"v{place}"]}
            for place in range(len(places))
        ]

    async def build_graph(self, generation: str, *, kinds: bool, dimensions: int) -> None:
        probe = [1.0] + [0.0] * (dimensions - 1)
        statement = build_graph(_chunk_type(generation, kinds=kinds), probe)
        for left in reversed(range(_BUILDS)):
            try:
                await self.generation_read(generation, statement)
                return
            except DatabaseUnavailable as exc:
                refused = isinstance(exc, StatementRefused) and exc.reason != "timeout"
                if refused or isinstance(exc, GenerationGone) or not left:
                    raise
            await asyncio.sleep(_BUILD_PAUSE)

    # Weights

    async def outdated_weights(
        self, generation: str, *, kinds: bool, average_length: float, after: str, limit: int
    ) -> list[WeightedChunk]:
        statement = write.outdated_weights(
            _chunk_type(generation, kinds=kinds),
            average_length=average_length,
            after=after,
            limit=limit,
        )
        return list(map(_weighted, await self.generation_read(generation, statement)))

    async def set_weights(
        self,
        generation: str,
        *,
        kinds: bool,
        average_length: float,
        changes: Sequence[WeightedChunk],
    ) -> None:
        await self.generation_write(
            generation,
            write.set_weights(
                _chunk_type(generation, kinds=kinds),
                average_length=average_length,
                changes=[
                    {
                        "chunkId": change.chunk_id,
                        "duplicateOf": change.duplicate_of,
                        "weights": list(change.weights),
                    }
                    for change in changes
                ],
            ),
        )

    async def set_scores(self, generation: str, scores: Sequence[ChunkScores]) -> None:
        await self.generation_write(generation, write.set_scores(generation, scores))


def _chunk_type(generation: str, *, kinds: bool) -> str:
    return kind_type(generation) if kinds else generation


async def _of_chunks(
    compute: Callable[[Sequence[ChunkRecord]], T], chunks: Sequence[ChunkRecord]
) -> T:
    """Return what is computed of chunks; of many in a thread, as 500 take some 10 ms."""
    return compute(chunks) if len(chunks) <= _FEW else await asyncio.to_thread(compute, chunks)


def _rows(chunks: Sequence[ChunkRecord]) -> list[dict[str, Any]]:
    return list(map(rows.chunk_row, chunks))


def _bytes(chunks: Sequence[ChunkRecord]) -> int:
    return sum(map(chunk_bytes, chunks))


def _weighted(row: Row) -> WeightedChunk:
    return WeightedChunk(
        chunk_id=row["chunkId"],
        terms=row.get("terms") or (),
        weights=row.get("weights") or (),
        lengths=row.get("lengths") or (),
        average_length=row.get("averageLength") or 0.0,
        duplicate_of=row.get("duplicateOf"),
        embedding=row.get("embedding"),
    )
