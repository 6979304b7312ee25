"""Services on documents: index, delete, list."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ability_search.collection import Collection, checked_name, public_name
from ability_search.compute_turns import ComputeTurns
from ability_search.documents import Document
from ability_search.errors import (
    DatabaseUnavailable,
    EmbeddingUnavailable,
    GenerationGone,
    InvalidInput,
    ModelMismatch,
    TextsRefused,
)
from ability_search.extensions.formats.semantic import SentenceWindows
from ability_search.extensions.kinds.derived_kinds import KindDerivation
from ability_search.index.embedding_cache import EmbeddingCache
from ability_search.index.index_calls import (
    Failure,
    IndexCall,
    IndexOptions,
    IndexReport,
    Report,
    Written,
    dedup_threshold,
    recipe_for,
)
from ability_search.index.index_ports import IndexPorts
from ability_search.index.pipeline import Limits, Pipeline, Steps, Task
from ability_search.index.preparation import (
    Bounds,
    Prepared,
    Recipe,
    content_hash,
    generated_sources,
    prepare,
)
from ability_search.index.sequences import with_preceding
from ability_search.index.writer import Writer
from ability_search.ops.metrics.metric_table import CHUNKS_DELETED, CHUNKS_INDEXED
from ability_search.store.halves import in_halves
from ability_search.store.records import Replacement, SourceRecord
from ability_search.text.analyzer import analyzer_for
from ability_search.text.chunkers.strategies import SEMANTIC
from ability_search.text.languages import detect_language
from ability_search.text.model_traits import language_warnings

log = logging.getLogger(__name__)

_HASH_SLICE = 500
"""Sources whose hashes are read in one round trip."""
_CHARACTERS = 10
"""Characters whose chunking takes as long as the work on a candidate of a query."""
_SHORT_BATCH = 1 << 18
"""Characters of documents that are hashed without a thread."""
_DELETE_ATTEMPTS = 3
_CHECK_EMBEDDER = "Check that the model manager or the API runs and serves this model."


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page of sources in order; ``cursor`` marks the next page, ``None`` on the last one."""

    collection: Collection
    sources: tuple[str, ...]
    cursor: str | None


class Indexer:
    """The index and delete services, and the list of what is stored."""

    def __init__(self, ports: IndexPorts) -> None:
        self._ports = ports
        self._store = ports.store
        self._registry = ports.registry
        self._settings = ports.settings
        self._meter = ports.meter
        # One document at a time: each may take hundreds of megabytes. Not with queries, which
        # would wait for seconds.
        self._computing = ComputeTurns()

    async def index(
        self,
        name: str,
        documents: Sequence[Document],
        options: IndexOptions,
        report: Report,
    ) -> IndexReport:
        """Index ``documents`` in the collection ``name``, which is created if it is missing.

        Unchanged documents are skipped; a changed document replaces only its own chunks, and the
        source of a document that has become blank is deleted. The report lists documents that
        cannot be indexed, and new or changed documents that are :attr:`Document.unread`.

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
        threshold = dedup_threshold(options, collection)
        documents = [replace(each, dedup_threshold=threshold) for each in documents]
        last = {document.source: document for document in documents}.values()
        moved: list[str] = []
        if collection is not None:
            await self.discard(name, await self._left_children(collection, last))
            moved = await self._moved(collection, last)
        result = await self.index_into(name, collection, documents, options, report)
        result.warnings += moved
        await self.discard(name, [each.source for each in last if each.blank])
        return result

    async def _left_children(
        self, collection: Collection, documents: Iterable[Document]
    ) -> list[str]:
        """Return the stored documents that are no longer in the files of others."""
        holders = [each for each in documents if each.children is not None]
        if not holders or not collection.nested:
            return []
        kept = {child for each in holders for child in each.children or ()}
        left = await self._inside(collection, [each.source for each in holders], kept)
        return [each.source for each in left]

    async def inside(self, name: str, files: Sequence[str]) -> int:
        """Return the number of documents in stored files, less the files that do not count."""
        collection = await self._registry.find(name)
        if collection is None or not collection.nested or not files:
            return 0
        inside = await self._inside(collection, files)
        holders = await self._records(collection, list({each.of or "" for each in inside}))
        return len(inside) - sum(not each.counted for each in holders)

    async def _inside(
        self, collection: Collection, files: Sequence[str], others: Iterable[str] = ()
    ) -> list[SourceRecord]:
        """Return the records of the documents in stored files, without ``others``."""
        left = {*others, *generated_sources(files)}
        stored = await in_halves(partial(self._store.documents_of, collection.type), files)
        records = await self._records(collection, [each for each in stored if each not in left])
        return [each for each in records if each.metadata.get("path") == each.of]

    async def _moved(self, collection: Collection, documents: Iterable[Document]) -> list[str]:
        """Return warnings for sources of documents in files that are stored as others'."""
        holders = {
            each.source: each.of
            for each in documents
            if each.of is not None
            and each.of == each.metadata.get("path")
            and not each.source.startswith(f"{each.of}#")
        }
        records = await self._records(collection, [*holders])
        return [
            f"{each.source!r} was {f'in {each.of}' if each.of else 'another document'} and is now"
            f" in {holders[each.source]}; give each its own source to keep both"
            for each in records
            if each.of != holders[each.source]
        ]

    async def _records(
        self, collection: Collection, sources: Sequence[str]
    ) -> Sequence[SourceRecord]:
        read = partial(self._store.source_records_named, collection.type)
        return await in_halves(read, sources) if sources else ()

    async def index_into(
        self,
        record: str,
        collection: Collection | None,
        documents: Sequence[Document],
        options: IndexOptions,
        report: Report,
        *,
        keep_refused: bool = False,
    ) -> IndexReport:
        """Index as :meth:`index` does, into the generation of a record, which may be new.

        With ``keep_refused`` documents are stored although the embedder refuses texts of them, see
        :mod:`.partial_vectors`.
        """
        started = time.perf_counter()
        unknown = collection is None or not collection.content_language
        detected = await detected_language(documents) if unknown else ""
        recipe = recipe_for(options, collection, self._settings, detected=detected)
        model = self._model(options, collection)
        counted = sum(not each.container for each in documents)
        result = IndexReport(public_name(record), counted, model)
        if (options.max_tokens or 0) > recipe.chunk_size:
            result.warnings.append(
                f"chunks have at most {recipe.chunk_size} tokens, not {options.max_tokens}:"
                f" {model} reads no more (embedding_max_tokens)"
            )
        call = IndexCall(result, report)
        tasks = await self._hashed(call.distinct(documents), recipe, model)
        if collection is not None and not options.force:
            current, tasks = await self._changed(collection, tasks, result)
            if current is None and record != result.collection:
                raise DatabaseUnavailable(
                    "the generation being built no longer exists", hint="Try again."
                )
            if current is None or current.type != collection.type:
                # Another generation may be chunked and embedded differently: start over with it.
                return await self.index_into(
                    record, current, documents, options, report, keep_refused=keep_refused
                )
            collection = current
        result.wanted = [task.document.source for task in tasks if task.document.unread]
        tasks = [task for task in tasks if not task.document.unread]
        turns = await with_preceding(
            [task.document for task in tasks],
            collection,
            self._store,
            count=recipe.turns,
            others=documents,
        )
        tasks = [task._replace(document=turn) for task, turn in zip(tasks, turns, strict=True)]
        await call.publish("indexing")
        writer = Writer(
            self._ports,
            name=record,
            collection=collection,
            model=model,
            recipe=recipe,
        )
        try:
            for some in _children_first(tasks):
                if writer.collection is None and some[0].document.container:
                    break
                await self._run(
                    _unfinished(some, result.failed),
                    writer,
                    call,
                    recipe,
                    model,
                    embed_all=options.embed_all,
                    keep_refused=keep_refused,
                )
        except EmbeddingUnavailable as exc:
            if record == result.collection:
                _add_progress(exc, result)
            raise
        if writer.collection is not None:
            result.dimensions = writer.collection.dimensions
            language = writer.collection.content_language or detected
            result.warnings += language_warnings(model, language, analyzer=recipe.language)
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

    async def delete(self, name: str, sources: Sequence[str] | None = None) -> int:
        """Delete sources, or the whole collection; return the number of deleted chunks.

        The documents of a source, and the kinds derived from it, are deleted with it.

        Raises:
            NotFound: if there is no such collection. A missing source is not an error.
        """
        for _ in range(_DELETE_ATTEMPTS):
            collection = await self._registry.get(name)
            if sources is None:
                current = await self._registry.reload(name) or collection
                if await self._registry.drop(current):
                    self._meter.add(CHUNKS_DELETED, current.chunks)
                    return current.chunks
            else:
                deleted = await self.remove(collection, sources)
                if deleted is not None:
                    return deleted
            await self._registry.reload(name)
        return 0

    async def stored(self, name: str, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that are stored."""
        collection = await self._registry.find(name) if sources else None
        if collection is None:
            return []
        found = await self._registry.consult(
            collection, partial(self._store.content_hashes, sources=sources)
        )
        return list(found[1]) if found else []

    async def discard(self, name: str, sources: Sequence[str]) -> int:
        """Delete sources, if they are stored; return how many were."""
        collection = await self._registry.reload(name) if sources else None
        for _ in range(_DELETE_ATTEMPTS):
            if collection is None:
                break
            found = await self._registry.consult(
                collection, partial(self._store.content_hashes, sources=sources)
            )
            collection, stored = found or (None, {})
            if collection is None or not stored:
                break
            if await self.remove(collection, list(stored)) is not None:
                return len(stored)
            collection = await self._registry.reload(name)
        return 0

    async def remove(
        self, collection: Collection, sources: Sequence[str], *, children: bool = True
    ) -> int | None:
        """Delete sources with the kinds derived from them and, in the same transaction, all others.

        Without ``children``, the documents that callers stored as documents of these are kept.

        Returns:
            The number of deleted chunks; ``None`` if the generation is gone.
        """
        try:
            every = await self._with_children(collection, sources) if children else sources
        except GenerationGone:
            return None
        made = generated_sources(sources) if collection.kind_chunks else []
        wanted = list(dict.fromkeys([*every, *made]))
        replaced = await self._store.replace(collection, Replacement(wanted))
        if replaced is None:
            return None
        current, deleted = replaced.collection, replaced.deleted
        self._registry.learn(collection.name, current)
        self._meter.add(CHUNKS_DELETED, deleted)
        if children and current.may_have_children and not collection.may_have_children:
            # Another worker stored the first ones after this record was read.
            deleted += await self.remove(current, sources) or 0
        return deleted

    async def _with_children(self, collection: Collection, sources: Sequence[str]) -> Sequence[str]:
        """Return sources and those of all documents of them, and of these in turn."""
        every, parents = dict.fromkeys(sources), sources
        while parents and collection.may_have_children:
            found = await self._store.documents_of(collection.type, parents)
            parents = [each for each in found if each not in every]
            every.update(dict.fromkeys(parents))
            if not collection.nested:
                break
        return list(every)

    async def _hashed(
        self, documents: Iterable[Document], recipe: Recipe, model: str
    ) -> list[Task]:
        wanted = list(documents)

        def hashed() -> list[Task]:
            return [
                Task(doc, content_hash(doc, recipe, model=model, counter=self._ports.counter.name))
                for doc in wanted
            ]

        short = sum(map(_length, wanted)) <= _SHORT_BATCH
        return hashed() if short else await asyncio.to_thread(hashed)

    async def _changed(
        self, collection: Collection, tasks: list[Task], result: IndexReport
    ) -> tuple[Collection | None, list[Task]]:
        """Return the tasks whose stored hash differs; count the others as unchanged.

        The collection is returned as it is now; ``None`` if it is gone.
        """
        changed = []
        current: Collection | None = collection
        for start in range(0, len(tasks), _HASH_SLICE):
            part = tasks[start : start + _HASH_SLICE]
            stored: Mapping[str, str] = {}
            if current is not None:
                sources = [task.document.source for task in part]
                found = await self._registry.consult(
                    current, partial(self._store.content_hashes, sources=sources)
                )
                current, stored = found or (None, {})
            for task in part:
                if stored.get(task.document.source) == task.content_hash:
                    result.unchanged += 1
                else:
                    changed.append(task)
        return current, changed

    async def _run(
        self,
        tasks: Sequence[Task],
        writer: Writer,
        call: IndexCall,
        recipe: Recipe,
        model: str,
        *,
        embed_all: bool,
        keep_refused: bool,
    ) -> None:
        """Prepare, embed and store documents."""
        embedding, database = self._settings.embedding, self._settings.database
        kinds = KindDerivation(self._ports, recipe)
        cache = EmbeddingCache(
            self._ports,
            model,
            record=writer.name,
            dimensions=writer.collection.dimensions if writer.collection else None,
            enabled=embedding.reuse and not embed_all,
        )
        steps = Steps(
            prepare=partial(self._prepare, call.result, recipe, kinds, model),
            find_vectors=cache.find,
            embed=partial(self._ports.embed, model),
            write=partial(self._write, writer),
            keep_refused=keep_refused,
        )
        limits = Limits(
            preparing=kinds.concurrency,
            batch_texts=embedding.batch_texts,
            embedders=embedding.concurrency,
            group_chunks=database.write_group_chunks,
            group_bytes=database.write_group_bytes,
        )
        await Pipeline(call, steps, limits).run(tasks)
        call.result.warnings += kinds.warnings

    async def _turns(self, document: Document, model: str) -> list[int]:
        """Return the offsets at which a document turns; none if the embedder refuses its texts."""
        windows = await self._computing.run(
            partial(SentenceWindows, document.content, document.format, document.language),
            work=len(document.content) // _CHARACTERS,
        )
        try:
            size = self._settings.embedding.batch_texts
            vectors = [
                await self._ports.embed(model, windows.texts[start : start + size])
                for start in range(0, len(windows.texts), size)
            ]
        except TextsRefused:
            return []
        return windows.turns(np.concatenate(vectors)) if vectors else []

    async def _prepare(
        self,
        result: IndexReport,
        recipe: Recipe,
        kinds: KindDerivation,
        model: str,
        task: Task,
    ) -> Prepared:
        """Chunk and analyze a document, and derive its kinds."""
        limits = self._settings.limits
        turns = None
        if recipe.chunk_strategy == SEMANTIC:
            turns = await self._turns(task.document, model)
        run = partial(
            prepare,
            task.document,
            recipe,
            content_hash=task.content_hash,
            analyzer=analyzer_for(recipe.language),
            count=self._ports.counter,
            bounds=Bounds(limits.document_chunks, limits.stored_bytes),
            turns=turns,
        )
        work = _length(task.document) // _CHARACTERS
        prepared = await self._computing.run(run, work=work)
        result.warnings += prepared.warnings
        if not prepared.passages and not task.document.container:
            raise InvalidInput("content", "is blank; nothing is stored of it", hint="Send a text.")
        return await kinds.derive(prepared)

    async def _write(self, writer: Writer, group: list[Prepared]) -> Written:
        written = await writer.write(group)
        self._meter.add(CHUNKS_INDEXED, written.chunks)
        return Written(0, 0, 0, 0) if group[0].document.container else written

    async def list_sources(
        self, name: str, *, limit: int, cursor: str | None, children: bool = True
    ) -> SourcePage:
        """Return one page of a collection's sources, and the collection as it is now.

        Without ``children``, the sources of documents of other documents are left out.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if the cursor was not returned with an earlier page.
        """
        after = "" if cursor is None else _read_cursor(cursor)
        await self._registry.get(name)
        collection = await self._registry.current(name)
        found = await self._store.sources(
            collection.type, after=after, limit=limit + 1, children=children
        )
        names = tuple(found)
        more = len(names) > limit
        return SourcePage(collection, names[:limit], _cursor(names[limit - 1]) if more else None)

    def _model(self, options: IndexOptions, collection: Collection | None) -> str:
        if collection is None:
            return options.model or self._settings.embedding.model
        if options.model and options.model != collection.model:
            raise ModelMismatch(
                collection.public_name, recorded=collection.model, requested=options.model
            )
        return collection.model


def _add_progress(failure: EmbeddingUnavailable, result: IndexReport) -> None:
    """Add the number of stored documents to a failure, and how to index the rest."""
    stored = result.added + result.updated + result.unchanged
    failure.args = (f"{failure}; {stored} of {result.documents} documents are stored",)
    remedy = _CHECK_EMBEDDER if failure.hint == failure.default_hint else failure.hint
    failure.hint = f"{remedy} Then call again: what is stored is skipped."


def _children_first(tasks: Iterable[Task]) -> list[list[Task]]:
    """Return documents without children, those with children, and those of children only."""
    groups: tuple[list[Task], ...] = [], [], []
    for task in tasks:
        groups[2 if task.document.container else bool(task.document.children)].append(task)
    return [group for group in groups if group]


def _unfinished(tasks: Sequence[Task], failed: Sequence[Failure]) -> list[Task]:
    """Return tasks that hash files differently in which a document failed: all are read again.

    A document that is invalid stays so until its file changes.
    """
    again = {each.source for each in failed if not isinstance(each.error, InvalidInput)}
    return [
        task._replace(content_hash="") if again.intersection(task.document.children or ()) else task
        for task in tasks
    ]


async def detected_language(documents: Sequence[Document]) -> str:
    """Return the language of documents, in a thread; code does not count."""
    texts = [document.content for document in documents if document.format != "code"]
    return await asyncio.to_thread(detect_language, texts)


def _length(document: Document) -> int:
    """Return the characters of the text and, roughly, of the metadata."""
    return len(document.content) + sum(len(str(value)) for value in document.metadata.values())


def _cursor(source: str) -> str:
    return base64.urlsafe_b64encode(source.encode()).decode("ascii")


def _read_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as exc:
        raise InvalidInput(
            "cursor", "not a cursor of this tool", hint="Pass nextCursor of the previous page."
        ) from exc
