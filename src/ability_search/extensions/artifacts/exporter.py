"""Exports a collection as an artifact."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ability_search import __version__
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, GenerationGone, NotFound, StatementRefused
from ability_search.extensions.artifacts.artifact_files import DigestedFile, empty, replaced
from ability_search.extensions.artifacts.artifact_writer import ArtifactWriter
from ability_search.extensions.artifacts.manifest import (
    CHUNKS,
    MANIFEST,
    SOURCES,
    USAGE,
    VECTORS,
    VERSION,
    ChunksManifest,
    origin_of,
)
from ability_search.index.index_calls import Progress, Report
from ability_search.index.index_ports import IndexPorts
from ability_search.store.pages import chunk_pages, read_pages
from ability_search.store.records import ChunkRecord
from ability_search.store.usage import Use, use_of, uses_of
from ability_search.store.values import Read, Sources

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_SOURCES = 256
"""Sources read at a time."""
_UNKNOWN = "unknown"
_USES = 1000
"""Uses read at a time."""


class Exporter:
    """Exports collections. It reads page by page and needs no embedder.

    Args:
        ports: The ports of indexing.
    """

    def __init__(self, ports: IndexPorts) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._counter = ports.counter

    async def export(
        self,
        name: str,
        directory: Path,
        report: Report,
        *,
        revision: str | None = None,
        usage: bool = False,
    ) -> ChunksManifest:
        """Write a collection to ``directory``; an artifact there is replaced.

        The artifact is a consistent state: if the collection changes meanwhile, it is read again.

        Args:
            name: The collection.
            directory: Directory of the artifact, created when the artifact is complete.
            report: Receives the progress.
            revision: Revision of the sources; ``None`` for a hash of their texts.
            usage: Also write how often agents were shown chunks.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if the directory holds anything but an artifact.
            DatabaseUnavailable: if the store did not answer, or the collection kept changing.
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
        """Export a collection by the name of its record, which may be under construction."""
        with replaced(directory) as new:
            for _ in range(_ATTEMPTS):
                collection = await self._registry.reload(record)
                if collection is None:
                    raise NotFound("collection", record)
                manifest = await self._attempt(collection, new, report, revision, usage)
                if manifest is not None:
                    manifest_file = DigestedFile(new / MANIFEST)
                    text = manifest.model_dump_json(indent=2, by_alias=True)
                    manifest_file.write(f"{text}\n".encode())
                    manifest_file.finish()
                    manifest_file.close()
                    return manifest
                log.info("%s changed while it was exported, starting again", record)
                empty(new)
            raise DatabaseUnavailable(
                f"writers kept changing the collection {record!r}",
                hint="Call again when there are fewer writes.",
            )

    async def _attempt(
        self,
        collection: Collection,
        directory: Path,
        report: Report,
        revision: str | None,
        usage: bool,
    ) -> ChunksManifest | None:
        """Return the manifest; ``None`` if the collection has changed meanwhile."""
        try:
            manifest = await self._write(collection, directory, report, revision, usage)
        except (GenerationGone, StatementRefused):
            if await self._unchanged(collection):
                raise
            return None
        if not await self._unchanged(collection):
            return None
        counts = manifest.counts
        written = (counts.chunks, counts.sources, counts.kind_chunks, counts.duplicates)
        known = (
            collection.chunks,
            collection.sources,
            collection.kind_chunks,
            collection.duplicates,
        )
        if written != known:
            raise DatabaseUnavailable(
                f"{collection.name!r} has {written} chunks, sources, kinds and duplicates;"
                f" its record says {known}",
                hint="Run search-reindex on the collection, then export it again.",
            )
        return manifest

    async def _unchanged(self, collection: Collection) -> bool:
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
            ask = Read(Sources(), collection, limit=_SOURCES)
            async for records in (page.items async for page in read_pages(self._store, ask)):
                await asyncio.to_thread(writer.add_sources, records)
                async for chunks in chunk_pages(self._store, collection, records):
                    await asyncio.to_thread(writer.add_chunks, chunks)
                    counter = counter or await asyncio.to_thread(self._counter_of, chunks)
                done += len(records)
                await report(Progress(collection.name, done, collection.sources, "exporting"))
            if usage:
                writer.add_uses([])
                async for uses in self._uses(collection):
                    await asyncio.to_thread(writer.add_uses, uses)
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
            collection=origin_of(collection, counter or self._counter.name),
            counts=counts,
            digests=digests,
            generator=f"ability-search {__version__}",
        )

    def _counter_of(self, chunks: Sequence[ChunkRecord]) -> str:
        """Return the name of this token counter if the chunks were counted with it."""
        same = all(self._counter.count(chunk.content) == chunk.tokens for chunk in chunks)
        return self._counter.name if same else _UNKNOWN

    async def _uses(self, collection: Collection) -> AsyncIterator[list[Use]]:
        """Yield the use of chunks by agents, page by page."""
        async for page in read_pages(self._store, Read(uses_of(collection.name), limit=_USES)):
            yield list(map(use_of, page.items))
