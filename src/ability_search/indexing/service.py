"""The index and delete services."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ability_search.collection import Collection, checked_name
from ability_search.config.schema import Settings
from ability_search.documents import Document, Vector
from ability_search.errors import DatabaseUnavailable, InvalidInput, ModelMismatch
from ability_search.indexing.describing import Describing
from ability_search.indexing.duplicates import Deduplication
from ability_search.indexing.options import IndexOptions, recipe_for
from ability_search.indexing.pipeline import Pipeline, Task
from ability_search.indexing.preparing import Bounds, Prepared, Recipe, content_hash, prepare
from ability_search.indexing.reports import IndexReport, Job, Report
from ability_search.indexing.reusing import Reusing
from ability_search.indexing.writing import Writer, prepared_bytes
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import CHUNKS_DELETED, CHUNKS_INDEXED, EMBEDDING_TEXTS
from ability_search.ports import Chat, Embedder, Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry
from ability_search.text.analyzer import analyzer_for
from ability_search.text.token_counter import TokenCounter

log = logging.getLogger(__name__)

_HASH_SLICE = 500
"""Sources whose hashes are read in one statement."""
_SHORT = 4_000
"""Characters up to which a text is chunked without a thread, in some milliseconds; a switch to a
thread takes a tenth of one."""
_SHORT_BATCH = 1 << 18
"""Characters of documents that are hashed without a thread."""


class Indexing:
    """The index and delete services.

    Args:
        store: The database.
        embedder: The embedder.
        chat: The language model for deriving kinds.
        registry: The registry of collections.
        settings: Defaults and limits.
        count: Counts tokens, with the tokenizer of the embedding model if it is known.
        counter: Name of the token counter; when it changes, texts are chunked again.
        now: Returns the time in epoch milliseconds.
        meter: Counts chunks and texts with reused vectors.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        chat: Chat,
        registry: Registry,
        *,
        settings: Settings,
        count: TokenCounter,
        counter: str,
        now: Callable[[], int],
        meter: Meter = UNMETERED,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._chat = chat
        self._registry = registry
        self._settings = settings
        self._count = count
        self._counter = counter
        self._now = now
        self._meter = meter

    async def index(
        self,
        name: str,
        documents: Sequence[Document],
        options: IndexOptions,
        report: Report,
    ) -> IndexReport:
        """Index ``documents`` in the collection ``name``, which is created if it is missing.

        Unchanged documents are skipped; a changed document replaces only its own chunks. The
        report lists documents that cannot be indexed, and new or changed documents that are
        :attr:`Document.unread`.

        Raises:
            InvalidInput: if an option is invalid.
            ModelMismatch: if the collection was embedded with another model.
            EmbeddingUnavailable: if the embedder failed. What was reported as done is stored.
            DatabaseUnavailable: if the database failed. What was reported as done is stored.
        """
        checked_name(name)
        # With force, stored hashes are not read, so a stale cached record would go unnoticed.
        known = self._registry.reload if options.force else self._registry.find
        collection = await known(name)
        return await self.index_into(name, collection, documents, options, report)

    async def index_into(
        self,
        record: str,
        collection: Collection | None,
        documents: Sequence[Document],
        options: IndexOptions,
        report: Report,
    ) -> IndexReport:
        """Index as :meth:`index` does, into the generation of a record, which may be new."""
        started = time.perf_counter()
        recipe = self.recipe(options, collection)
        model = self._model(options, collection)
        result = IndexReport(record.partition("@")[0], len(documents), model)
        job = Job(result, report)
        tasks = await self._tasks(job.distinct(documents), recipe, model)
        writer = self._writer(
            record, collection, recipe, model, dedup_threshold=options.dedup_threshold
        )
        if collection is not None and not options.force:
            tasks = await self._changed(writer, tasks, result)
            now = writer.collection
            if now is None and record != result.collection:
                raise DatabaseUnavailable(
                    "the generation being built no longer exists", hint="Try again."
                )
            if now is None or now.type != collection.type:
                # Another generation may be chunked and embedded differently: start over with it.
                return await self.index_into(record, now, documents, options, report)
        result.wanted = [task.document.source for task in tasks if task.document.unread]
        tasks = [task for task in tasks if not task.document.unread]
        await job.publish("indexing")
        if tasks:
            await self._run(tasks, writer, job, recipe, model, anew=options.anew)
        if writer.collection is not None:
            result.dimensions = writer.collection.dimensions
        result.seconds = time.perf_counter() - started
        log.info(
            "indexed %s: %d added, %d updated, %d unchanged, %d failed, %d chunks in %.2f s",
            record,
            result.added,
            result.updated,
            result.unchanged,
            len(result.failed),
            result.chunks,
            result.seconds,
        )
        return result

    async def delete(self, name: str, source: str | None = None) -> int:
        """Delete one source, or the whole collection; return the number of deleted chunks.

        The kinds derived from a source are deleted with it.

        Raises:
            NotFound: if there is no such collection. A missing source is not an error.
        """
        for _ in range(3):
            collection = await self._registry.get(name)
            if source is None:
                current = await self._registry.reload(name) or collection
                if await self._registry.drop(current):
                    self._meter.add(CHUNKS_DELETED, current.chunks)
                    return current.chunks
            else:
                deleted = await self.remove(collection, [source])
                if deleted is not None:
                    return deleted
            await self._registry.reload(name)
        return 0

    async def remove(
        self, collection: Collection, sources: Sequence[str], *, aspects: bool = True
    ) -> int | None:
        """Delete sources, see :meth:`Writer.remove`."""
        recipe = self.recipe(IndexOptions(), collection)
        writer = self._writer(collection.name, collection, recipe, collection.model)
        deleted = await writer.remove(collection, sources, aspects=aspects)
        self._meter.add(CHUNKS_DELETED, deleted or 0)
        return deleted

    async def _tasks(self, documents: Iterable[Document], recipe: Recipe, model: str) -> list[Task]:
        wanted = list(documents)

        def hashed() -> list[Task]:
            return [
                Task(doc, content_hash(doc, recipe, model=model, counter=self._counter))
                for doc in wanted
            ]

        short = sum(map(_length, wanted)) <= _SHORT_BATCH
        return hashed() if short else await asyncio.to_thread(hashed)

    async def _changed(self, writer: Writer, tasks: list[Task], result: IndexReport) -> list[Task]:
        """Return the tasks whose stored hash differs; count the others as unchanged."""
        changed = []
        for part in _slices(tasks, _HASH_SLICE):
            stored = await self._stored_hashes(writer, [task.document.source for task in part])
            for task in part:
                if stored.get(task.document.source) == task.content_hash:
                    result.unchanged += 1
                else:
                    changed.append(task)
        return changed

    async def _stored_hashes(self, writer: Writer, sources: Sequence[str]) -> dict[str, str]:
        collection = writer.collection
        if collection is None:
            return {}

        async def ask(current: Collection) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
            answer = await self._store.read(
                *arcadedb.source_hashes(current.name, current.type, sources)
            )
            return answer["collection"], answer["sources"]

        found = await self._registry.consult(collection, ask)
        if found is None:
            writer.collection = None
            return {}
        writer.collection, rows = found
        return {row["source"]: row["contentHash"] for row in rows}

    async def _run(
        self,
        tasks: Sequence[Task],
        writer: Writer,
        job: Job,
        recipe: Recipe,
        model: str,
        *,
        anew: bool,
    ) -> None:
        """Store the documents, and report reused vectors and warnings."""
        describing = Describing(
            self._chat,
            recipe,
            settings=self._settings.aspects,
            analyzer=analyzer_for(recipe.language),
            count=self._count,
        )
        pipeline = self._pipeline(writer, job, describing, recipe, model, anew=anew)
        await pipeline.run(tasks)
        job.told(reused=pipeline.reused, warnings=describing.warnings)

    def _pipeline(
        self,
        writer: Writer,
        job: Job,
        describing: Describing,
        recipe: Recipe,
        model: str,
        *,
        anew: bool,
    ) -> Pipeline:
        embedding = self._settings.embedding

        async def cut(task: Task) -> Prepared:
            if _length(task.document) <= _SHORT:
                prepared = self._cut(task, recipe)
            else:
                prepared = await asyncio.to_thread(self._cut, task, recipe)
            return await describing.described(prepared)

        async def embed(texts: list[str]) -> Vector:
            timeout = embedding.timeout * embedding.attempts
            return await self._embedder.embed(model, texts, timeout=timeout)

        async def store(group: list[Prepared]) -> None:
            written = await writer.write(group)
            self._meter.add(CHUNKS_INDEXED, written.chunks)
            await job.stored(written)

        async def reuse(texts: list[str]) -> Mapping[str, Vector]:
            found = await known.find(texts)
            self._meter.add(EMBEDDING_TEXTS, len(found), "reused")
            return found

        known = Reusing(
            self._store,
            model,
            record=writer.name,
            dimensions=writer.collection.dimensions if writer.collection else None,
            embed=embed,
        )
        return Pipeline(
            prepare=cut,
            reuse=reuse if embedding.reuse and not anew else _nothing,
            embed=embed,
            write=store,
            fail=job.failed,
            size=prepared_bytes,
            abreast=describing.abreast,
            batch_texts=embedding.batch_texts,
            embedders=embedding.concurrency,
            group_chunks=self._settings.database.write_group_chunks,
            group_bytes=self._settings.database.write_group_bytes,
        )

    def _cut(self, task: Task, recipe: Recipe) -> Prepared:
        limits = self._settings.limits
        prepared = prepare(
            task.document,
            recipe,
            content_hash=task.content_hash,
            analyzer=analyzer_for(recipe.language),
            count=self._count,
            bounds=Bounds(limits.document_chunks, limits.stored_bytes),
        )
        if not prepared.passages:
            raise InvalidInput("content", "is blank", hint="Use search-delete to delete a source.")
        return prepared

    def recipe(self, options: IndexOptions, collection: Collection | None) -> Recipe:
        """Return how a call chunks documents and derives kinds, see :func:`.recipe_for`."""
        return recipe_for(options, collection, self._settings)

    def _model(self, options: IndexOptions, collection: Collection | None) -> str:
        if collection is None:
            return options.model or self._settings.embedding.model
        if options.model and options.model != collection.model:
            raise ModelMismatch(
                collection.public_name, recorded=collection.model, requested=options.model
            )
        return collection.model

    def _writer(
        self,
        record: str,
        collection: Collection | None,
        recipe: Recipe,
        model: str,
        *,
        dedup_threshold: float | None = None,
    ) -> Writer:
        ranking = self._settings.ranking
        return Writer(
            self._store,
            self._registry,
            name=record,
            collection=collection,
            model=model,
            recipe=recipe,
            k1=ranking.bm25_k1,
            b=ranking.bm25_b,
            message_bytes=self._settings.database.write_group_bytes,
            now=self._now,
            meter=self._meter,
            deduplication=None
            if dedup_threshold is None
            else Deduplication(
                dedup_threshold, beam=ranking.ef_search, scan_below=ranking.scan_below
            ),
        )


async def _nothing(_texts: list[str]) -> Mapping[str, Vector]:
    """Return no known vectors, so that every text is embedded."""
    return {}


def _length(document: Document) -> int:
    """Characters of the text and, about, of the metadata."""
    return len(document.content) + sum(len(str(value)) for value in document.metadata.values())


def _slices(items: Sequence[Task], size: int) -> Iterator[Sequence[Task]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
