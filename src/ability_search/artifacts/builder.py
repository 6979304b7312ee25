"""Documents -> an artifact, without a collection that anybody sees."""

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
from ability_search.index.indexing import Indexing
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Built:
    """What became of the documents.

    Attributes:
        manifest: Of the new artifact.
        reports: One for each batch; unchanged documents have the vectors of the base.
        removed: Sources that only the base had.
    """

    manifest: ChunksManifest
    reports: list[IndexReport]
    removed: int


class Building:
    """The build service.

    Args:
        store: The database, which holds the collection for as long as it is being built.
        registry: Knows the collections.
        indexing: Makes documents findable.
        importing: Brings the artifact that is built upon.
        exporting: Writes the new one.
    """

    def __init__(
        self,
        store: Store,
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

        A document is taken over from ``base`` if everything is the same that decides its chunks
        and their vectors: its text, the settings and the model. A failure leaves the directory as
        it is.

        Args:
            name: Of the collection that it will be by default.
            directory: Of the artifact.
            batches: The documents, some at a time.
            options: How they are indexed.
            report: Receives the progress.
            base: An earlier artifact with the same model.
            revision: Of the sources; ``None`` for a hash over their texts.

        Raises:
            InvalidInput: if there is nothing to write, or the directory is no artifact.
            Damaged: if the base is.
            EmbeddingUnavailable: if the embedder gave out.
            DatabaseUnavailable: if the database did.
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
                raise InvalidInput("documents", "there are none to be found")
            manifest = await self._exporting.export_record(
                record, directory, report, revision=revision
            )
        finally:
            await asyncio.shield(self._importing.discard(record))
        return Built(manifest, reports, removed)

    async def _sweep(self, record: str, kept: set[str]) -> int:
        """Remove the sources that are not to be kept; how many those were."""
        collection = await self._registry.reload(record)
        if collection is None:
            return 0
        floor, removed = "", 0
        while page := await self._store.read(
            *arcadedb.list_sources(collection.type, after=floor, limit=_PAGE)
        ):
            floor = page[-1]["source"]
            gone = [row["source"] for row in page if row["source"] not in kept]
            if gone:
                await self._indexing.remove(collection, gone, kinds=False)
                removed += len(gone)
        return removed
