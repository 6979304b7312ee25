"""Builds an artifact of documents without a visible collection."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ability_search.artifacts.exporter import Exporting
from ability_search.artifacts.importer import Importable, Importing
from ability_search.artifacts.manifest import ChunksManifest
from ability_search.collection import checked_name
from ability_search.documents import Document
from ability_search.errors import InvalidInput
from ability_search.index.index_calls import IndexOptions, IndexReport, Report
from ability_search.index.indexer import Indexing
from ability_search.store.port import IndexStore
from ability_search.store.registry import Registry

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build.

    Attributes:
        manifest: Manifest of the new artifact.
        reports: One for each batch; unchanged documents have the vectors of the base.
        removed: Number of sources that only the base had.
    """

    manifest: ChunksManifest
    reports: list[IndexReport]
    removed: int


class Building:
    """Builds artifacts.

    Args:
        store: The store, which holds the collection while it is being built.
        registry: Registry of the collections.
        indexing: Indexes documents.
        importing: Loads the base artifact.
        exporting: Writes the new artifact.
    """

    def __init__(
        self,
        store: IndexStore,
        registry: Registry,
        indexing: Indexing,
        importing: Importing,
        exporting: Exporting,
    ) -> None:
        self._store = store
        self._registry = registry
        self._indexing = indexing
        self._importing = importing
        self._exporting = exporting

    async def build(
        self,
        name: str,
        directory: Path,
        batches: AsyncIterator[Sequence[Document]],
        options: IndexOptions,
        report: Report,
        *,
        base: Importable | None = None,
        revision: str | None = None,
    ) -> Built:
        """Write an artifact of documents to ``directory``.

        A document is copied from ``base`` if its text, the settings and the model are the same. A
        failure leaves the directory unchanged.

        Args:
            name: Default name of the collection.
            directory: Directory of the artifact.
            batches: The documents in batches.
            options: How to index them.
            report: Receives the progress.
            base: An earlier artifact with the same model.
            revision: Revision of the sources; ``None`` for a hash of their texts.

        Raises:
            InvalidInput: if there are no documents, or the directory is not an artifact.
            Damaged: if the base is invalid.
            EmbeddingUnavailable: if the embedder did not answer.
            DatabaseUnavailable: if the store did not answer.
        """
        record = f"{checked_name(name)}@{secrets.token_hex(4)}"
        reports: list[IndexReport] = []
        kept: set[str] = set()
        try:
            if base is not None:
                await self._importing.load(base, record, report)
            async for documents in batches:
                collection = await self._registry.reload(record)
                part = await self._indexing.index_into(
                    record, collection, documents, options, report
                )
                reports.append(part)
                kept.update(document.source for document in documents)
                kept.difference_update(failure.source for failure in part.failed)
            removed = await self._sweep(record, kept)
            collection = await self._registry.reload(record)
            if collection is None or not collection.sources:
                raise InvalidInput("documents", "no documents were found")
            manifest = await self._exporting.export_record(
                record, directory, report, revision=revision
            )
        finally:
            await asyncio.shield(self._importing.discard(record))
        return Built(manifest, reports, removed)

    async def _sweep(self, record: str, kept: set[str]) -> int:
        """Remove all other sources; return their number."""
        collection = await self._registry.reload(record)
        if collection is None:
            return 0
        after, removed = "", 0
        while page := await self._store.sources(collection.type, after=after, limit=_PAGE):
            after = page[-1]
            gone = [source for source in page if source not in kept]
            if gone:
                await self._indexing.remove(collection, gone, kinds=False)
                removed += len(gone)
        return removed
