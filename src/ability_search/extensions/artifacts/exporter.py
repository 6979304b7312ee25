"""Exports a collection as an artifact, page by page."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from ability_search import __version__
from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, GenerationGone, StatementRefused
from ability_search.extensions.artifacts.artifact_files import DigestedFile, empty, replaced
from ability_search.extensions.artifacts.artifact_format import (
    CHUNK_LINES,
    CHUNKS,
    MANIFEST,
    SOURCE_LINES,
    SOURCES,
    USAGE,
    USE_LINES,
    VECTORS,
    VERSION,
    ChunksManifest,
    Counts,
    origin_of,
    text_hash,
)
from ability_search.extensions.artifacts.artifact_reader import count_contents
from ability_search.extensions.sessions.uses import Use, use_of, uses_of
from ability_search.index.index_calls import Report
from ability_search.index.index_ports import IndexPorts
from ability_search.store.pages import chunk_pages, read_pages
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.store.values import Read, Sources
from ability_search.text.token_counter import TokenCounter

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_SOURCES = 256
"""Sources read at a time."""
_UNKNOWN = "unknown"
_USES = 1000
"""Uses read at a time."""


class ArtifactWriter:
    """Writes the files of an artifact.

    Args:
        directory: Directory of the files, which do not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, DigestedFile] = {}
        self._counts = Counter(dict.fromkeys(Counts.model_fields, 0))
        self._sources: dict[str, SourceRecord] = {}
        self._revision = 0
        self._text = sha256()

    def __enter__(self) -> ArtifactWriter:
        for name in (SOURCES, CHUNKS, VECTORS):
            self._files[name] = DigestedFile(self._directory / name)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def add_sources(self, records: Sequence[SourceRecord]) -> None:
        """Append sources, whose chunks follow in the same order."""
        self._sources = {record.source: record for record in records}
        count_contents(self._counts, records, ())
        for record in records:
            self._files[SOURCES].write(SOURCE_LINES.encode(record))

    def add_chunks(self, chunks: Sequence[ChunkRecord]) -> None:
        """Append chunks of the sources that were added last."""
        count_contents(self._counts, (), chunks)
        for chunk in chunks:
            self._digest(chunk)
            self._files[CHUNKS].write(CHUNK_LINES.encode(chunk, text_hash=text_hash(chunk)))
            self._files[VECTORS].write(np.asarray(chunk.embedding, dtype="<f4").tobytes())

    def add_uses(self, uses: Sequence[Use]) -> None:
        """Append uses; the first call creates the file."""
        if USAGE not in self._files:
            self._files[USAGE] = DigestedFile(self._directory / USAGE)
        for use in uses:
            self._counts["usage"] += 1
            self._files[USAGE].write(USE_LINES.encode(use))

    def finish(
        self, collection: Collection, counter: str, revision: str | None = None
    ) -> ChunksManifest:
        """Write the manifest, and return it.

        Args:
            collection: The collection that was written.
            counter: Name of the token counter.
            revision: Revision of the sources; ``None`` for a hash of their texts.
        """
        manifest = ChunksManifest(
            index_version=VERSION,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            revision=revision or f"sha256:{self._revision:064x}",
            model_id=collection.model,
            dim=collection.dimensions,
            normalize=True,
            vector_file=VECTORS,
            chunks_file=CHUNKS,
            sources_file=SOURCES,
            usage_file=USAGE if USAGE in self._files else None,
            collection=origin_of(collection, counter),
            counts=Counts(**self._counts),
            digests={name: file.finish() for name, file in self._files.items()},
            generator=f"ability-search {__version__}",
        )
        file = self._files[MANIFEST] = DigestedFile(self._directory / MANIFEST)
        file.write(f"{manifest.model_dump_json(indent=2, by_alias=True)}\n".encode())
        file.finish()
        return manifest

    def _digest(self, chunk: ChunkRecord) -> None:
        """Include a chunk in the revision.

        The revision is the sum of a hash of each source, so it depends neither on the order of
        the sources nor on how they are chunked. Derived kinds are left out.
        """
        source = self._sources[chunk.source]
        if source.generated:
            return
        if chunk.chunk_index == 0:
            described = [
                source.source,
                source.title,
                source.kind,
                dict(source.metadata),
                [dict(link) for link in source.links],
                source.of,
            ]
            self._text = sha256(json.dumps(described, sort_keys=True).encode() + b"\0")
        self._text.update(f"{chunk.lead}{chunk.content[chunk.overlap :]}".encode())
        if chunk.chunk_index == source.chunks - 1:
            self._text.update(source.tail.encode())
            self._revision = (self._revision + int(self._text.hexdigest(), 16)) % 2**256


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exports collections. It reads page by page and needs no embedder."""

    ports: IndexPorts

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
        registry = self.ports.registry
        collection = await registry.current(name)
        with replaced(directory) as new:
            for _ in range(_ATTEMPTS):
                manifest, failure = None, None
                try:
                    manifest = await self._write(collection, new, report, revision, usage)
                except (GenerationGone, StatementRefused) as exc:
                    failure = exc
                read, collection = collection, await registry.current(name)
                if (read.type, read.revision) == (collection.type, collection.revision):
                    if manifest is not None:
                        _check_counts(collection, manifest)
                        return manifest
                    if failure is not None:
                        raise failure
                log.info("%s changed while it was exported, starting again", name)
                empty(new)
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
        """Write the files; return the manifest."""
        store, own, counter = self.ports.store, self.ports.counter, ""
        with ArtifactWriter(directory) as writer:
            done = 0
            ask = Read(Sources(), collection, limit=_SOURCES)
            async for records in (page.items async for page in read_pages(store, ask)):
                await asyncio.to_thread(writer.add_sources, records)
                async for chunks in chunk_pages(store, collection, records):
                    await asyncio.to_thread(writer.add_chunks, chunks)
                    counter = counter or await asyncio.to_thread(_counter_of, chunks, own)
                done += len(records)
                await report(done, collection.sources, "exporting")
            if usage:
                # There is at least one page, so the file exists.
                shown = Read(uses_of(collection.name), limit=_USES)
                async for page in read_pages(store, shown):
                    await asyncio.to_thread(writer.add_uses, list(map(use_of, page.items)))
            return await asyncio.to_thread(writer.finish, collection, counter or own.name, revision)


def _counter_of(chunks: Sequence[ChunkRecord], counter: TokenCounter) -> str:
    """Return the name of a token counter if the chunks were counted with it."""
    same = all(counter.count(chunk.content) == chunk.tokens for chunk in chunks)
    return counter.name if same else _UNKNOWN


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
