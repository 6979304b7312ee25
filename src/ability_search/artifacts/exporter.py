"""A collection -> an artifact."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search import (
    __version__,
)
from ability_search.artifacts.artifact_files import empty, replaced
from ability_search.artifacts.artifact_writer import ArtifactWriter
from ability_search.artifacts.manifest import (
    CHUNKS,
    MANIFEST,
    SOURCES,
    USAGE,
    VECTORS,
    VERSION,
    ChunksManifest,
    origin_of,
)
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, NotFound, StatementRefused, TooLarge
from ability_search.index.index_calls import Progress, Report
from ability_search.ports import Store
from ability_search.store import (
    arcadedb,
)
from ability_search.store.registry import Registry
from ability_search.text.token_counter import TokenCounter

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_PLACES = 5000
"""Places of sources read at a time."""
_SOURCES = 256
"""Sources read at a time."""
_CHUNKS = 256
"""Chunks read at a time."""
_UNKNOWN = "unknown"
_USES = 1000
"""Records of use read at a time."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """Chunks ``first`` to ``end - 1`` of each of ``sources``."""

    sources: tuple[str, ...]
    first: int
    end: int

    def halves(self) -> tuple[_Slice, ...]:
        """The same in two, in order; nothing if it is one chunk."""
        if len(self.sources) > 1:
            middle = len(self.sources) // 2
            parts = self.sources[:middle], self.sources[middle:]
            return tuple(_Slice(part, self.first, self.end) for part in parts)
        if self.end - self.first > 1:
            middle = (self.first + self.end) // 2
            cuts = (self.first, middle), (middle, self.end)
            return tuple(_Slice(self.sources, *cut) for cut in cuts)
        return ()


class Exporting:
    """The export service. It reads page by page and needs no embedder.

    Args:
        store: The database.
        registry: Knows the collections.
        count: Counts tokens.
        counter: Names that way of counting; an artifact tells it if its chunks were counted so.
    """

    def __init__(
        self, store: Store, registry: Registry, *, count: TokenCounter, counter: str
    ) -> None:
        self._store = store
        self._registry = registry
        self._count = count
        self._counter = counter

    async def export(
        self,
        name: str,
        directory: Path,
        report: Report,
        *,
        revision: str | None = None,
        usage: bool = False,
    ) -> ChunksManifest:
        """Write a collection to ``directory``, replacing the artifact that may be there.

        What is written is one state of the collection. If it changes meanwhile, it is read again.

        Args:
            name: The collection.
            directory: Of the artifact; made when it is complete.
            report: Receives the progress.
            revision: Of the sources; ``None`` for a hash over their texts.
            usage: Also write which agent was shown what.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if the directory holds anything but an artifact.
            DatabaseUnavailable: if the database did not answer, or writers kept being faster.
        """
        found = await self._registry.get(name)
        return await self.export_record(
            found.name, directory, report, revision=revision, usage=usage
        )

    async def export_record(
        self,
        record: str,
        directory: Path,
        report: Report,
        *,
        revision: str | None = None,
        usage: bool = False,
    ) -> ChunksManifest:
        """As :meth:`export`, of a record, which may be of a collection that is being built."""
        with replaced(directory) as new:
            for _ in range(_ATTEMPTS):
                collection = await self._registry.reload(record)
                if collection is None:
                    raise NotFound("collection", record)
                manifest = await self._attempt(collection, new, report, revision, usage)
                if manifest is not None:
                    (new / MANIFEST).write_text(
                        manifest.model_dump_json(indent=2) + "\n", encoding="utf-8"
                    )
                    return manifest
                log.info("%s was changed while it was exported, beginning again", record)
                empty(new)
            raise DatabaseUnavailable(
                f"writers kept changing the collection {record!r}",
                hint="Call again when fewer are writing.",
            )

    async def _attempt(
        self,
        collection: Collection,
        directory: Path,
        report: Report,
        revision: str | None,
        usage: bool,
    ) -> ChunksManifest | None:
        """``None`` if the collection was changed meanwhile."""
        try:
            manifest = await self._write(collection, directory, report, revision, usage)
        except StatementRefused:
            if await self._is_as(collection):
                raise
            return None
        if not await self._is_as(collection):
            return None
        counts = manifest.counts
        written = (counts.chunks, counts.sources, counts.aspects, counts.duplicates)
        known = (collection.chunks, collection.sources, collection.aspects, collection.duplicates)
        if written != known:
            raise DatabaseUnavailable(
                f"the database answered with {written} chunks, sources, aspects and duplicates of"
                f" {collection.name!r}, its record says {known}",
                hint="Run search-reindex on the collection, then export it again.",
            )
        return manifest

    async def _is_as(self, collection: Collection) -> bool:
        now = await self._registry.reload(collection.name)
        return now is not None and (now.type, now.revision) == (
            collection.type,
            collection.revision,
        )

    async def _write(
        self,
        collection: Collection,
        directory: Path,
        report: Report,
        revision: str | None,
        usage: bool,
    ) -> ChunksManifest:
        with ArtifactWriter(directory) as writer:
            done = 0
            counter = ""
            async for records in self._records(collection):
                await asyncio.to_thread(writer.add_sources, records)
                async for rows in self._chunks(collection, records):
                    await asyncio.to_thread(writer.add_chunks, rows)
                    counter = counter or await asyncio.to_thread(self._counter_of, rows)
                done += len(records)
                await report(Progress(collection.name, done, collection.sources, "exporting"))
            if usage:
                writer.add_uses([])
                async for rows in self._uses(collection):
                    await asyncio.to_thread(writer.add_uses, rows)
            counts, digests, content = await asyncio.to_thread(writer.finish)
        return ChunksManifest(
            index_version=VERSION,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            revision=revision or content,
            model_id=collection.model,
            dim=collection.dimensions,
            normalize=True,
            vector_file=VECTORS,
            chunks_file=CHUNKS,
            sources_file=SOURCES,
            usage_file=USAGE if usage else None,
            collection=origin_of(collection, counter or self._counter),
            counts=counts,
            digests=digests,
            generator=f"ability-search {__version__}",
        )

    def _counter_of(self, rows: Sequence[dict[str, Any]]) -> str:
        """Return the name of the token counter of some chunks, as far as it is known."""
        same = all(self._count.count(row["content"]) == row["tokens"] for row in rows)
        return self._counter if same else _UNKNOWN

    async def _records(self, collection: Collection) -> AsyncIterator[list[dict[str, Any]]]:
        """The Source records in the order they are stored in, page by page.

        An index decides by that order between what scores alike, so an artifact keeps it.
        """
        bucket, places = await self._places(collection)
        limit = _SOURCES
        done = 0
        while done < len(places):
            rids = [f"{bucket}:{place}" for place in places[done : done + limit]]
            statement = arcadedb.source_records_at(collection.type, rids)
            try:
                records = await self._store.read(*statement)
            except TooLarge:
                if limit == 1:
                    raise
                limit //= 2
                continue
            by_rid = {record["@rid"]: record for record in records}
            yield [by_rid[rid] for rid in rids if rid in by_rid]
            done += len(rids)

    async def _places(self, collection: Collection) -> tuple[str, npt.NDArray[np.int64]]:
        """The bucket of the Source records, and their places in it, ascending: 8 bytes each."""
        bucket, floor = "", ""
        places = array("q")
        while page := await self._store.read(
            *arcadedb.source_places(collection.type, after=floor, limit=_PLACES)
        ):
            for row in page:
                bucket, _, place = row["rid"].partition(":")
                places.append(int(place))
            floor = page[-1]["source"]
        return bucket, np.sort(np.asarray(places))

    async def _uses(self, collection: Collection) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the recorded use of chunks by agents, page by page."""
        for row in await self._registry.read(arcadedb.agents(collection.name)):
            floor = ""
            while page := await self._registry.read(
                arcadedb.uses_of(row["agent"], collection.name, after=floor, limit=_USES)
            ):
                yield page
                floor = page[-1]["chunkId"]

    async def _chunks(
        self, collection: Collection, records: Sequence[dict[str, Any]]
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """The chunks of some sources, in their order, page by page."""
        aspects = arcadedb.aspect_type(collection.type)
        for aspect, part in _slices(records):
            async for rows in self._slice(aspects if aspect else collection.type, part):
                yield rows

    async def _slice(self, chunk_type: str, part: _Slice) -> AsyncIterator[list[dict[str, Any]]]:
        statement = arcadedb.source_chunks(chunk_type, part.sources, first=part.first, end=part.end)
        try:
            rows = await self._store.read(*statement)
        except TooLarge:
            halves = part.halves()
            if not halves:
                raise
            for half in halves:
                async for each in self._slice(chunk_type, half):
                    yield each
        else:
            order = {source: place for place, source in enumerate(part.sources)}
            yield sorted(rows, key=lambda row: (order[row["source"]], row["chunkIndex"]))


def _slices(records: Iterable[dict[str, Any]]) -> Iterator[tuple[bool, _Slice]]:
    """The chunks of sources in reads of bounded size, and whether those are of aspects."""
    for aspect, group in groupby(records, key=lambda record: bool(record.get("aspectOf"))):
        for part in _packed(group):
            yield aspect, part


def _packed(records: Iterable[dict[str, Any]]) -> Iterator[_Slice]:
    counts: dict[str, int] = {}
    for record in records:
        count = record["chunks"]
        if counts and sum(counts.values()) + count > _CHUNKS:
            yield _Slice(tuple(counts), 0, max(counts.values()))
            counts = {}
        if count > _CHUNKS:
            for first in range(0, count, _CHUNKS):
                yield _Slice((record["source"],), first, min(first + _CHUNKS, count))
        else:
            counts[record["source"]] = count
    if counts:
        yield _Slice(tuple(counts), 0, max(counts.values()))
