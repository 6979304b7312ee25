"""Exports a collection as an artifact."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ability_search import __version__
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, GenerationGone, StatementRefused
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
from ability_search.store.usage import use_of, uses_of
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
            name: The collection, or the record ``name@token`` of one under construction.
            directory: Directory of the artifact, created when the artifact is complete.
            report: Receives the progress.
            revision: Revision of the sources; ``None`` for a hash of their texts.
            usage: Also write how often agents were shown chunks.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if the directory holds anything but an artifact.
            DatabaseUnavailable: if the store did not answer, or the collection kept changing.
        """
        collection = await self._registry.current(name)
        with replaced(directory) as new:
            for _ in range(_ATTEMPTS):
                manifest, failure = None, None
                try:
                    manifest = await self._write(collection, new, report, revision, usage)
                except (GenerationGone, StatementRefused) as exc:
                    failure = exc
                current = await self._registry.current(name)
                unchanged = (current.type, current.revision) == (
                    collection.type,
                    collection.revision,
                )
                if failure is not None and unchanged:
                    raise failure
                if manifest is not None and unchanged:
                    _check_counts(collection, manifest)
                    _write_manifest(manifest, new)
                    return manifest
                log.info("%s changed while it was exported, starting again", name)
                empty(new)
                collection = current
            raise DatabaseUnavailable(
                f"writers kept changing the collection {name!r}",
                hint="Call again when there are fewer writes.",
            )

    async def _write(
        self,
        collection: Collection,
        directory: Path,
        report: Report,
        revision: str | None,
        usage: bool,
    ) -> ChunksManifest:
        """Write the data files; return the manifest."""
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
                # There is at least one page, so the file exists.
                shown = Read(uses_of(collection.name), limit=_USES)
                async for page in read_pages(self._store, shown):
                    await asyncio.to_thread(writer.add_uses, list(map(use_of, page.items)))
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


def _check_counts(collection: Collection, manifest: ChunksManifest) -> None:
    names = ("chunks", "sources", "kind_chunks", "duplicates")
    written, known = (
        tuple(getattr(each, name) for name in names) for each in (manifest.counts, collection)
    )
    if written != known:
        raise DatabaseUnavailable(
            f"{collection.name!r} has {written} chunks, sources, kinds and duplicates;"
            f" its record says {known}",
            hint="Run search-reindex on the collection, then export it again.",
        )


def _write_manifest(manifest: ChunksManifest, directory: Path) -> None:
    file = DigestedFile(directory / MANIFEST)
    file.write(f"{manifest.model_dump_json(indent=2, by_alias=True)}\n".encode())
    file.finish()
    file.close()
