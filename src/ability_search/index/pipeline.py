"""The way of documents through the index, in one call.

read -> split -> skip what is unchanged -> embed -> replace. A document is compared by its content
hash before it is split. The steps after that run concurrently, joined by queues, so that the
embedder is busy while documents are split and stored. Maintenance follows in the background when
the call has ended, see :mod:`.maintenance`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from ability_search.collection import checked_name, public_name
from ability_search.compute_turns import ComputeTurns
from ability_search.documents import Document
from ability_search.errors import DatabaseUnavailable, EmbeddingUnavailable, GenerationGone
from ability_search.index.flow import Flow
from ability_search.index.index_calls import IndexJob, IndexReport, Report
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import content_hash, text_length
from ability_search.index.sequences import with_preceding
from ability_search.index.stored_sources import StoredSources, stored_hashes
from ability_search.text.model_traits import language_warnings

log = logging.getLogger(__name__)

_ATTEMPTS = 8
"""Generations that a call follows a collection to."""
_HASH_SLICE = 500
"""Sources whose hashes are read in one round trip."""
_SHORT_BATCH = 1 << 18
"""Characters of documents that are hashed without a thread."""
_CHECK_EMBEDDER = "Check that the model manager or the API runs and serves this model."


class IndexPipeline:
    """The index service."""

    def __init__(self, ports: IndexPorts, sources: StoredSources) -> None:
        self._ports = ports
        self._registry = ports.registry
        self._sources = sources
        # One document at a time: each may take hundreds of megabytes. Not with queries, which
        # would wait for seconds.
        self._computing = ComputeTurns()

    async def index(
        self,
        name: str,
        documents: Sequence[Document],
        options: IndexFields,
        report: Report,
        *,
        rebuild: bool = False,
    ) -> IndexReport:
        """Index ``documents`` in the collection ``name``, which is created if it is missing.

        Unchanged documents are skipped; a changed document replaces only its own chunks, and the
        source of a document that has become blank is deleted. The report lists documents that
        cannot be indexed, and new or changed documents that are :attr:`Document.unread`.

        Args:
            name: The collection, or the record of a generation that is being built.
            documents: The documents.
            options: The options.
            report: Takes the progress.
            rebuild: Whether the documents were restored, see :class:`IndexJob`.

        Raises:
            InvalidInput: if an option is invalid.
            ModelMismatch: if the collection was embedded with another model.
            EmbeddingUnavailable: if the embedder failed. What was reported as done is stored.
            DatabaseUnavailable: if the database failed. What was reported as done is stored.
        """
        started = time.perf_counter()
        collection_name = checked_name(public_name(name))
        counted = sum(not each.container for each in documents)
        result = IndexReport(collection_name, counted, options.model or "")
        job = IndexJob(self._ports, name, documents, options, rebuild, result, report)
        # With force, stored hashes are not read, so a stale cached record would go unnoticed.
        stale = options.force or not job.is_public
        await job.follow(await (self._registry.reload if stale else self._registry.find)(name))
        left = list(result.distinct(documents))
        last = left if job.is_public else []
        if job.collection is not None:
            result.warnings += await self._sources.clear_up(job.collection, last)
        try:
            for _ in range(_ATTEMPTS):
                try:
                    await self._index(job, left)
                    break
                except GenerationGone:
                    log.info("collection %s changed during a call, following it", name)
                finished = job.stored.union(each.source for each in result.failed)
                left = [each for each in left if each.source not in finished]
                await job.follow(await self._registry.reload(name))
            else:
                raise DatabaseUnavailable(f"collection {name!r} keeps changing", hint="Call again.")
        except EmbeddingUnavailable as exc:
            if job.is_public:
                _add_progress(exc, result)
            raise
        await self._sources.discard(name, [each.source for each in last if each.blank])
        _conclude(job, time.perf_counter() - started)
        return result

    async def _index(self, job: IndexJob, documents: Sequence[Document]) -> None:
        """Take documents of a call through all steps.

        Raises:
            GenerationGone: if the generation moved, or another worker began it differently.
        """
        flow = Flow(job, self._computing)
        changed = await _changed(await _hashed(documents, job, flow), job)
        job.report.wanted = [document.source for document in changed if document.unread]
        changed = await with_preceding(
            [document for document in changed if not document.unread],
            job.collection,
            self._ports.store,
            count=job.turns,
            others=job.documents,
        )
        await job.progress("indexing")
        await flow.run(changed)


# What is unchanged is skipped


async def _hashed(documents: Sequence[Document], job: IndexJob, flow: Flow) -> list[Document]:
    """Return the documents with their content hashes."""
    counter, threshold = job.ports.counter.name, job.recipe.dedup_threshold

    def hashed(document: Document) -> Document:
        hash_ = content_hash(document, job.recipe, counter=counter, marks=flow.marks(document))
        kept = document.dedup_threshold if job.rebuild else threshold
        return replace(document, content_hash=hash_, dedup_threshold=kept)

    if sum(map(text_length, documents)) <= _SHORT_BATCH:
        return list(map(hashed, documents))
    return await asyncio.to_thread(lambda: list(map(hashed, documents)))


async def _changed(documents: Sequence[Document], job: IndexJob) -> list[Document]:
    """Return the documents whose stored hash differs; count the others as unchanged.

    With force, and in a rebuild, all differ.

    Raises:
        GenerationGone: if the generation moved.
    """
    if job.collection is None or job.options.force:
        return list(documents)
    changed: list[Document] = []
    for start in range(0, len(documents), _HASH_SLICE):
        part = documents[start : start + _HASH_SLICE]
        sources = [document.source for document in part]
        current, stored = await stored_hashes(
            job.ports.store, job.ports.registry, job.collection, sources
        )
        if current is None or current.type != job.collection.type:
            raise GenerationGone(job.record)
        job.collection = current
        changed += [each for each in part if stored.get(each.source) != each.content_hash]
    job.report.unchanged = len(documents) - len(changed)
    return changed


# The end


def _add_progress(failure: EmbeddingUnavailable, result: IndexReport) -> None:
    """Add the number of stored documents to a failure, and how to index the rest."""
    stored = result.added + result.updated + result.unchanged
    failure.args = (f"{failure}; {stored} of {result.documents} documents are stored",)
    remedy = _CHECK_EMBEDDER if failure.hint == failure.default_hint else failure.hint
    failure.hint = f"{remedy} Then call again: what is stored is skipped."


def _conclude(job: IndexJob, seconds: float) -> None:
    """Complete the report of a call."""
    result, collection, recipe = job.report, job.collection, job.recipe
    if collection is not None:
        result.dimensions = collection.dimensions
        language = collection.content_language or job.detected
        result.warnings += language_warnings(recipe.model, language, analyzer=recipe.language)
    result.seconds = seconds
    log.info(
        "indexed %s: %d added, %d updated, %d unchanged, %d failed, %d chunks in %.2f s",
        job.record,
        result.added,
        result.updated,
        result.unchanged,
        len(result.failed),
        result.chunks,
        seconds,
    )
