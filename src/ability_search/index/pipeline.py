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
from dataclasses import dataclass, field, replace
from functools import partial

from ability_search.collection import Collection, checked_name, public_name
from ability_search.compute_turns import ComputeTurns
from ability_search.documents import Document
from ability_search.errors import (
    DatabaseUnavailable,
    EmbeddingUnavailable,
    GenerationGone,
    InvalidInput,
)
from ability_search.index.embedding_cache import EmbeddingCache
from ability_search.index.flow import Flow, HashedDocument, Steps
from ability_search.index.index_calls import (
    IndexCall,
    IndexReport,
    Report,
    chosen_model,
    recipe_for,
)
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import Prepared, Recipe, content_hash, prepare
from ability_search.index.sequences import with_preceding
from ability_search.index.stored_sources import StoredSources, stored_hashes
from ability_search.index.writer import Writer
from ability_search.text.analyzer import analyzer_for
from ability_search.text.chunkers.strategies import Turns, is_markdown
from ability_search.text.languages import detect_language
from ability_search.text.model_traits import language_warnings

log = logging.getLogger(__name__)

_ATTEMPTS = 8
"""Generations that a call follows a collection to."""
_HASH_SLICE = 500
"""Sources whose hashes are read in one round trip."""
_CHARACTERS = 10
"""Characters whose chunking takes as long as the work on a candidate of a query."""
_SHORT_BATCH = 1 << 18
"""Characters of documents that are hashed without a thread."""
_CHECK_EMBEDDER = "Check that the model manager or the API runs and serves this model."


@dataclass(slots=True)
class IndexJob:
    """One call, and the generation that it writes to.

    Attributes:
        ports: The ports and settings of indexing.
        record: Record of the generation, which may be new.
        documents: All documents of the call.
        options: The options of the call.
        rebuild: Whether the documents were restored from another generation: all are stored, with
            their stored vectors, and even if the embedder refuses texts of them, see
            :mod:`.partial_vectors`.
        call: Receives the results.
        collection: The generation; ``None`` if it does not exist yet.
        recipe: How documents are chunked and analyzed in this generation.
        model: Its embedding model.
        detected: Language of the texts, if the generation does not say it.
        stored: Sources that were stored by this call.
    """

    ports: IndexPorts
    record: str
    documents: Sequence[Document]
    options: IndexFields
    rebuild: bool
    call: IndexCall
    collection: Collection | None = None
    recipe: Recipe = field(init=False)
    model: str = ""
    detected: str = ""
    stored: set[str] = field(default_factory=set)

    async def follow(self, collection: Collection | None) -> None:
        """Write to this generation from now on, as it is chunked and embedded.

        Raises:
            DatabaseUnavailable: if it was being built and is gone.
            InvalidInput: if an option does not fit it.
            ModelMismatch: if it is embedded with another model than the options name.
        """
        if collection is None and (self.rebuild or (self.stored and not self.is_public)):
            # A newly created generation would lack what was stored before.
            raise DatabaseUnavailable(
                "the generation being built no longer exists", hint="Try again."
            )
        if collection is None or not collection.content_language:
            self.detected = self.detected or await detected_language(self.documents)
        settings, result = self.ports.settings, self.call.result
        self.collection = collection
        self.recipe = recipe_for(self.options, collection, settings, detected=self.detected)
        self.model = result.model = chosen_model(self.options, collection, settings)
        size = self.recipe.chunk_size
        if (self.options.max_tokens or 0) > size:
            result.warn(
                f"chunks have at most {size} tokens, not {self.options.max_tokens}:"
                f" {self.model} reads no more (embedding_max_tokens)"
            )

    @property
    def is_public(self) -> bool:
        """Whether the generation is live, or will be from its first document on."""
        return self.record == self.call.result.collection


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
        job = IndexJob(self._ports, name, documents, options, rebuild, IndexCall(result, report))
        # With force, stored hashes are not read, so a stale cached record would go unnoticed.
        stale = options.force or not job.is_public
        await job.follow(await (self._registry.reload if stale else self._registry.find)(name))
        left = list(job.call.distinct(documents))
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
        splitting = Splitting(job, self._computing)
        tasks = await _hashed(documents, job, splitting)
        changed = await _changed(tasks, job)
        result = job.call.result
        result.wanted = [task.document.source for task in changed if task.document.unread]
        changed = [task for task in changed if not task.document.unread]
        turns = await with_preceding(
            [task.document for task in changed],
            job.collection,
            self._ports.store,
            count=job.recipe.turns,
            others=job.documents,
        )
        await job.call.publish("indexing")
        writer = Writer(
            self._ports,
            name=job.record,
            collection=job.collection,
            model=job.model,
            recipe=job.recipe,
        )
        settings = self._ports.settings
        cache = EmbeddingCache(
            self._ports,
            job.model,
            record=job.record,
            dimensions=job.collection.dimensions if job.collection else None,
            enabled=settings.embedding.reuse and (job.rebuild or not job.options.force),
        )
        steps = Steps(
            split=splitting.run,
            splitters=splitting.concurrency,
            find_vectors=cache.find,
            embed=partial(self._ports.embed, job.model),
            write=writer.write,
            keep_refused=job.rebuild,
        )
        flow = Flow(job.call, steps, settings)
        try:
            await flow.run(
                [task._replace(document=turn) for task, turn in zip(changed, turns, strict=True)]
            )
        finally:
            job.stored |= flow.stored
            job.collection = writer.collection
        result.warnings += splitting.warnings


async def detected_language(documents: Sequence[Document]) -> str:
    """Return the language of documents, in a thread; code does not count."""
    texts = [document.content for document in documents if document.format != "code"]
    return await asyncio.to_thread(detect_language, texts)


# What is unchanged is skipped


async def _hashed(
    documents: Sequence[Document], job: IndexJob, splitting: Splitting
) -> list[HashedDocument]:
    counter, threshold = job.ports.counter.name, job.recipe.dedup_threshold
    if not job.rebuild:
        documents = [replace(each, dedup_threshold=threshold) for each in documents]

    def hashed() -> list[HashedDocument]:
        return [
            HashedDocument(
                document,
                content_hash(
                    document,
                    job.recipe,
                    model=job.model,
                    counter=counter,
                    marks=splitting.marks(document),
                ),
            )
            for document in documents
        ]

    short = sum(map(_length, documents)) <= _SHORT_BATCH
    return hashed() if short else await asyncio.to_thread(hashed)


async def _changed(tasks: Sequence[HashedDocument], job: IndexJob) -> list[HashedDocument]:
    """Return the documents whose stored hash differs; count the others as unchanged.

    With force, and in a rebuild, all differ.

    Raises:
        GenerationGone: if the generation moved.
    """
    if job.collection is None or job.options.force:
        return list(tasks)
    changed: list[HashedDocument] = []
    for start in range(0, len(tasks), _HASH_SLICE):
        part = tasks[start : start + _HASH_SLICE]
        sources = [task.document.source for task in part]
        current, stored = await stored_hashes(
            job.ports.store, job.ports.registry, job.collection, sources
        )
        if current is None or current.type != job.collection.type:
            raise GenerationGone(job.record)
        job.collection = current
        changed += [task for task in part if stored.get(task.document.source) != task.content_hash]
    job.call.result.unchanged = len(tasks) - len(changed)
    return changed


# The steps


class Splitting:
    """Chunks and analyzes documents, and derives further parts of them.

    Args:
        job: The call.
        computing: Where long documents wait for their turn.
    """

    def __init__(self, job: IndexJob, computing: ComputeTurns) -> None:
        self._job = job
        self._ports = job.ports
        self._computing = computing
        self._derivations = [derive(job.ports, job.recipe) for derive in job.ports.added.derive]

    @property
    def concurrency(self) -> int:
        """Number of documents to split at the same time."""
        return max((each.concurrency for each in self._derivations), default=1)

    @property
    def warnings(self) -> list[str]:
        """Warnings for the caller."""
        return [warning for each in self._derivations for warning in each.warnings]

    def marks(self, document: Document) -> tuple[object, ...]:
        """Return what the derived parts of a document depend on, for its content hash."""
        return tuple(mark for each in self._derivations for mark in each.marks(document))

    async def run(self, task: HashedDocument) -> Prepared:
        """Return a document as it is stored, without its vectors.

        Raises:
            SearchError: if it cannot be stored.
            EmbeddingUnavailable: if its turns could not be embedded.
        """
        split = self._ports.added.split.get(self._job.recipe.chunk_strategy)
        turns = None
        if split is not None:
            turns = await split(self._ports, self._job.model, self._computing, task.document)
        compute = partial(self._prepared, task, turns)
        prepared = await self._computing.run(compute, work=_length(task.document) // _CHARACTERS)
        self._job.call.result.warnings += prepared.warnings
        if not prepared.passages and not task.document.container:
            raise InvalidInput("content", "is blank; nothing is stored of it", hint="Send a text.")
        for each in self._derivations:
            await each.derive(prepared)
        return prepared

    def _prepared(self, task: HashedDocument, turns: Turns | None) -> Prepared:
        document, recipe, added = task.document, self._job.recipe, self._ports.added
        prepared = prepare(
            document,
            recipe,
            content_hash=task.content_hash,
            analyzer=analyzer_for(recipe.language),
            count=self._ports.counter,
            limits=self._ports.settings.limits,
            turns=turns,
            label=added.label,
        )
        if is_markdown(document.content, document.format, document.language):
            prepared.warnings = [
                warning
                for check in added.check_markdown
                for warning in check(document.source, document.content)
            ]
        return prepared


def _length(document: Document) -> int:
    """Return the characters of the text and, roughly, of the metadata."""
    return len(document.content) + sum(len(str(value)) for value in document.metadata.values())


# The end


def _add_progress(failure: EmbeddingUnavailable, result: IndexReport) -> None:
    """Add the number of stored documents to a failure, and how to index the rest."""
    stored = result.added + result.updated + result.unchanged
    failure.args = (f"{failure}; {stored} of {result.documents} documents are stored",)
    remedy = _CHECK_EMBEDDER if failure.hint == failure.default_hint else failure.hint
    failure.hint = f"{remedy} Then call again: what is stored is skipped."


def _conclude(job: IndexJob, seconds: float) -> None:
    """Complete the report of a call."""
    result, collection = job.call.result, job.collection
    if collection is not None:
        result.dimensions = collection.dimensions
        language = collection.content_language or job.detected
        result.warnings += language_warnings(job.model, language, analyzer=job.recipe.language)
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
