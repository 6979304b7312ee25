"""The flow of new and changed documents through the steps of indexing.

The steps run concurrently, joined by queues; the failure of one document does not affect the
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from ability_search.compute_turns import ComputeTurns
from ability_search.documents import Document, Vector
from ability_search.errors import (
    EmbeddingUnavailable,
    InvalidInput,
    SearchError,
    TextsRefused,
    first_failure,
)
from ability_search.index.embedding_cache import EmbeddingCache
from ability_search.index.index_calls import IndexJob
from ability_search.index.partial_vectors import Embed, every_vector, vectors_or_refusals
from ability_search.index.preparation import Prepared, prepare, text_length
from ability_search.index.writer import prepared_bytes, write
from ability_search.text.chunkers.strategies import SEMANTIC, is_markdown

FindVectors = Callable[[list[str]], Awaitable[Mapping[str, Vector]]]
"""Returns the stored vectors of texts, by text; never raises."""
Write = Callable[[Sequence[Prepared]], Awaitable[None]]
"""Stores documents with their vectors in one transaction, as :func:`.writer.write`."""

_FEW = 8
"""Passages in the first batch of many documents, and minimum size of the last batches."""
_LOOKED_UP = 64
"""Passages per lookup of stored vectors."""
_CHARACTERS = 10
"""Characters whose chunking takes as long as the work on a candidate of a query."""
_LINGER = 1.0
"""Seconds that a finished document waits for others to share a transaction."""
_ENOUGH = 100
"""Chunks that wait for no others: those that are prepared while they are written come next."""


class Flow:
    """The way of the documents of one call; the failure of one does not affect the others.

    Args:
        job: The call; it receives the results, the failures and the progress.
        computing: Where long documents wait for their turn.
    """

    def __init__(self, job: IndexJob, computing: ComputeTurns) -> None:
        self._job = job
        self._ports = job.ports
        self._computing = computing
        strategy = job.recipe.chunk_strategy
        if strategy == SEMANTIC and strategy not in job.ports.added.split:
            problem = f"{strategy} needs the extension formats, which is left out"
            raise InvalidInput("chunkStrategy", problem, hint="Name another one, or load it.")
        self._derivations = [derive(job.ports, job.recipe) for derive in job.ports.added.derive]
        self.embed: Embed = partial(job.ports.embed, job.recipe.model)
        self.find_vectors: FindVectors = EmbeddingCache(job).find
        self.write: Write = partial(write, job)
        self._database = job.ports.settings.database
        self._finished: asyncio.Queue[Prepared | None] = asyncio.Queue(
            self._database.write_group_chunks
        )
        self._broken: EmbeddingUnavailable | None = None
        self._ending = False
        """True if only the last batches are left for the embedder."""
        self._children: set[str] = set()
        """Documents in files of the call that are not stored yet."""

    def marks(self, document: Document) -> tuple[object, ...]:
        """Return what the derived parts of a document depend on, for its content hash."""
        return tuple(mark for each in self._derivations for mark in each.marks(document))

    async def run(self, documents: Sequence[Document]) -> None:
        """Store the documents.

        Raises:
            EmbeddingUnavailable: if the embedder failed; documents embedded until then are stored.
            DatabaseUnavailable: if storing failed.
        """
        sources = {document.source for document in documents}
        self._children = sources.intersection(
            child for document in documents for child in document.children or ()
        )
        embedding = self._ports.settings.embedding
        most, readers = embedding.batch_texts, embedding.concurrency
        many = len(documents) > most
        # The first lookup of many documents covers the first two batches.
        lookups = Batches(
            readers, most=_LOOKED_UP, first=3 * _FEW if many else _LOOKED_UP, tapered=False
        )
        batches = Batches(readers, most=most, first=_FEW if many else most, tapered=many)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prepare(documents, lookups))
                group.create_task(self._reuse(lookups, batches, readers))
                group.create_task(self._embed(batches, readers))
                group.create_task(self._write())
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        if self._broken:
            raise self._broken
        for each in self._derivations:
            self._job.report.warnings += each.warnings

    # Documents -> passages

    async def _prepare(self, documents: Sequence[Document], lookups: Batches) -> None:
        """Chunk and analyze the documents, and derive their kinds."""
        waiting = iter(documents)
        splitters = max((each.concurrency for each in self._derivations), default=1)
        while not self._broken and (some := list(islice(waiting, splitters))):
            await asyncio.sleep(0)
            steps = map(self._prepared, some)
            found = await asyncio.gather(*steps) if len(some) > 1 else [await next(steps)]
            for prepared in found:
                if prepared is not None and not prepared.missing:
                    await self._finished.put(prepared)
                    continue
                for slot in slots_of(prepared) if prepared else ():
                    await lookups.put(slot)
        await lookups.close()

    async def _prepared(self, document: Document) -> Prepared | None:
        try:
            return await self.split(document)
        except EmbeddingUnavailable as exc:
            self._broken = exc
            return None
        except SearchError as exc:
            self._job.report.fail(document, exc)
            return None

    async def split(self, document: Document) -> Prepared:
        """Return a document as it is stored, without its vectors.

        Raises:
            SearchError: if it cannot be stored.
            EmbeddingUnavailable: if its turns could not be embedded.
        """
        recipe, added = self._job.recipe, self._ports.added
        split, cuts = added.split.get(recipe.chunk_strategy), None
        if split is not None:
            cuts = await split(self._ports, recipe.model, self._computing, document)

        def compute() -> tuple[Prepared, list[str]]:
            prepared = prepare(
                document,
                recipe,
                count=self._ports.counter,
                limits=self._ports.settings.limits,
                cuts=cuts,
                turns=self._job.turns,
                label=added.label,
            )
            warnings: list[str] = []
            if is_markdown(document.content, document.format, document.language):
                for check in added.check_markdown:
                    warnings += check(document.source, document.content)
            return prepared, warnings

        work = text_length(document) // _CHARACTERS
        prepared, warnings = await self._computing.run(compute, work=work)
        self._job.report.warnings += warnings
        if not prepared.passages and not document.container:
            raise InvalidInput("content", "is blank; nothing is stored of it", hint="Send a text.")
        for each in self._derivations:
            await each.derive(prepared)
        return prepared

    # Passages -> vectors

    async def _reuse(self, lookups: Batches, batches: Batches, readers: int) -> None:
        """Fill in stored vectors, and pass the other passages on in batches."""
        while (lookup := await lookups.queue.get()) is not None:
            stored = await self.find_vectors([slot.text for slot in lookup])
            for slot in lookup:
                vector = stored.get(slot.text)
                if vector is None:
                    await batches.put(slot)
                else:
                    self._job.report.reused += 1
                    await self._arrived(slot, vector)
        self._ending = True
        await batches.close(readers)

    async def _embed(self, batches: Batches, readers: int) -> None:
        """Embed the batches, several at the same time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(readers):
                group.create_task(self._embed_batches(batches))
        await self._finished.put(None)

    async def _embed_batches(self, batches: Batches) -> None:
        while (batch := await batches.queue.get()) is not None:
            if self._broken:
                continue
            try:
                await self._embed_batch(batch)
            except EmbeddingUnavailable as exc:
                self._broken = exc

    async def _embed_batch(self, batch: list[Slot]) -> None:
        """Embed a batch. Repeated texts are embedded once.

        The document of a refused text fails, unless it is kept. A kind with a refused text is left
        out; its document is kept.
        """
        texts = list(dict.fromkeys(slot.text for slot in batch))
        if self._job.rebuild:
            vectors, refused = await every_vector(self.embed, texts)
            rows: Mapping[str, Vector | TextsRefused] = dict(zip(texts, vectors, strict=True))
        else:
            found = await vectors_or_refusals(self.embed, texts)
            rows, refused = dict(zip(texts, found, strict=True)), {}
        errors = {texts[place]: error for place, error in refused.items()}
        for slot in batch:
            row = rows[slot.text]
            what = f"chunk {slot.place + 1} of {len(slot.part.passages)}"
            if not isinstance(row, TextsRefused):
                if error := errors.get(slot.text):
                    slot.part.partial.add(slot.place)
                    self._job.report.keep(slot.part.document, error.of(f"kept, but {what}"))
                await self._arrived(slot, row)
            elif slot.part is slot.whole:
                self._job.report.fail(slot.whole.document, row.of(what))
            else:
                source = slot.part.document.source
                self._job.report.warnings.append(f"{source} is left out: {what}: {row}")
                await self._arrived(slot, None)

    async def _arrived(self, slot: Slot, vector: Vector | None) -> None:
        """Add a vector; a document with all its vectors is finished."""
        slot.part.vectors[slot.place] = vector
        slot.whole.missing -= 1
        if not slot.whole.missing:
            await self._finished.put(slot.whole)

    # Vectors -> store

    async def _write(self) -> None:
        """Store documents, a group in one transaction; files after the documents in them."""
        holders: list[Prepared] = []
        open_ = True
        while open_ and (first := await self._finished.get()) is not None:
            group, open_ = await self._group(first)
            ready = [each for each in (*holders, *group) if not self._awaits(each)]
            holders = [each for each in (*holders, *group) if self._awaits(each)]
            await self._store(ready)
        if not self._broken:
            await self._store(holders)

    async def _group(self, first: Prepared) -> tuple[list[Prepared], bool]:
        """Return documents to store together; and False if they are the last ones.

        All that were finished while the previous group was written are among them.
        """
        group, chunks, size = [first], first.chunks, prepared_bytes(first)
        most, most_bytes = self._database.write_group_chunks, self._database.write_group_bytes
        try:
            async with asyncio.timeout(0 if self._ending else _LINGER):
                while chunks < most and size < most_bytes:
                    if chunks >= _ENOUGH and self._finished.empty():
                        break
                    following = await self._finished.get()
                    if following is None:
                        return group, False
                    group.append(following)
                    chunks += following.chunks
                    size += prepared_bytes(following)
        except TimeoutError:
            pass
        return group, True

    def _awaits(self, holder: Prepared) -> bool:
        """Return whether documents in the same file are neither stored nor failed yet."""
        awaited = self._children.intersection(holder.document.children or ())
        return bool(awaited.difference(each.source for each in self._job.report.failed))

    async def _store(self, group: Sequence[Prepared]) -> None:
        """Store documents, files without a text of their own apart."""
        parts = [[each for each in group if each.document.container is it] for it in (False, True)]
        for part in filter(None, parts):
            for prepared in part:
                if self._is_unfinished(prepared.document):
                    for each in prepared.parts:
                        each.document = replace(each.document, content_hash="")
            await self.write(part)
            sources = {each.document.source for each in part}
            self._job.stored |= sources
            self._children -= sources
            await self._job.progress("indexing")

    def _is_unfinished(self, holder: Document) -> bool:
        """Return whether a document in a file failed, so that the file is to be read again.

        A document that is invalid stays so until its file changes.
        """
        failed = self._job.report.failed if holder.children else ()
        again = {each.source for each in failed if not isinstance(each.error, InvalidInput)}
        return not again.isdisjoint(holder.children or ())


# Batches of passages: how those of many documents share lookups and calls of the embedder


class Slot(NamedTuple):
    """A passage of a document or of a derived kind that waits for its vector."""

    whole: Prepared
    part: Prepared
    place: int

    @property
    def text(self) -> str:
        """The text to embed for the passage."""
        return self.part.texts[self.place]


class Batches:
    """Gathers passages, for lookups of stored vectors or for calls of the embedder.

    With many documents the first batches are small, each twice as large as the one before: the
    next step starts early. If it is the last one, so are the last batches, each half of what is
    left: little is left to store when the embedder ends. Few documents go in one batch, which
    suits a remote embedder.

    Args:
        waiting: Number of batches that may wait in the queue.
        most: Maximum number of passages in a batch.
        first: Number of passages in the first batch.
        tapered: Whether the last batches are small, too.
    """

    def __init__(self, waiting: int, *, most: int, first: int, tapered: bool) -> None:
        self.queue: asyncio.Queue[list[Slot] | None] = asyncio.Queue(waiting)
        """The batches; ``None`` comes after the last one, once for each reader."""
        self._slots: list[Slot] = []
        self._most = most
        self._size = min(first, most)
        self._tapered = tapered

    async def put(self, slot: Slot) -> None:
        """Add a passage, and put a batch into the queue if one is full."""
        self._slots.append(slot)
        # One full batch is kept back, to be split into the last, smaller ones.
        kept = self._size if self._tapered and self._size == self._most else 0
        if len(self._slots) == self._size + kept:
            await self._pass_on(self._size)
            self._size = min(2 * self._size, self._most)

    async def close(self, readers: int = 1) -> None:
        """Put the last batches into the queue, and its end."""
        while left := len(self._slots):
            share = left // 2 if self._tapered and left > 2 * _FEW else left
            await self._pass_on(min(share, self._most))
        for _ in range(readers):
            await self.queue.put(None)

    async def _pass_on(self, size: int) -> None:
        batch, self._slots = self._slots[:size], self._slots[size:]
        await self.queue.put(batch)


def slots_of(prepared: Prepared) -> Iterator[Slot]:
    """Yield the passages of a document and of its kinds."""
    for part in prepared.parts:
        for place in range(len(part.passages)):
            yield Slot(prepared, part, place)
