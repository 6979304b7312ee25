"""The way of documents through the index, in one call.

accept -> skip what is stored -> chunk, analyze, derive kinds -> reuse stored vectors -> embed the
rest -> find duplicates and write (:class:`.Writer`). The steps run concurrently, joined by queues,
so that the embedder is busy while documents are prepared and stored. Maintenance follows in the
background when the call has ended, see :mod:`.maintenance`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from ability_search.documents import Document, Vector
from ability_search.errors import EmbeddingUnavailable, SearchError, TextsRefused, first_failure
from ability_search.index.batches import Batches, Lookups, Slot
from ability_search.index.index_calls import IndexCall, Written
from ability_search.index.partial_vectors import every_vector, vectors_or_refusals
from ability_search.index.preparation import Prepared
from ability_search.index.writer import prepared_bytes

_LINGER = 1.0
"""Seconds that a finished document waits for others to share a transaction."""


class Task(NamedTuple):
    """A document to store, with its content hash."""

    document: Document
    content_hash: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is in progress.

    Attributes:
        preparing: Documents prepared at the same time.
        batch_texts: Maximum number of texts in a call of the embedder.
        embedders: Calls of the embedder at the same time.
        group_chunks: Number of chunks from which a transaction is full.
        group_bytes: Number of bytes from which a transaction is full.
    """

    preparing: int
    batch_texts: int
    embedders: int
    group_chunks: int
    group_bytes: int


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of indexing documents.

    Attributes:
        prepare: Chunks and analyzes a document and derives its kinds. A :class:`SearchError` fails
            the document.
        find_vectors: Returns the stored vectors of texts, by text; never raises.
        embed: Returns the vectors of texts.
        write: Stores documents with their vectors in one transaction.
        keep_refused: Whether documents with texts that the embedder refuses are stored all the
            same, see :mod:`.partial_vectors`.
    """

    prepare: Callable[[Task], Awaitable[Prepared]]
    find_vectors: Callable[[list[str]], Awaitable[Mapping[str, Vector]]]
    embed: Callable[[list[str]], Awaitable[Vector]]
    write: Callable[[list[Prepared]], Awaitable[Written]]
    keep_refused: bool = False


class Pipeline:
    """The way of the documents of one call; the failure of one does not affect the others.

    Args:
        call: Receives the results, the failures and the progress.
        steps: What is done with documents.
        limits: Bounds of what is in progress.
    """

    def __init__(self, call: IndexCall, steps: Steps, limits: Limits) -> None:
        self._call = call
        self._steps = steps
        self._limits = limits
        self._lookups: asyncio.Queue[list[Slot] | None] = asyncio.Queue(limits.embedders)
        self._batches: asyncio.Queue[list[Slot] | None] = asyncio.Queue(limits.embedders)
        self._finished: asyncio.Queue[Prepared | None] = asyncio.Queue(limits.group_chunks)
        self._broken: EmbeddingUnavailable | None = None
        self._ending = False
        """True if only the last batches are left for the embedder."""

    async def run(self, tasks: Sequence[Task]) -> None:
        """Store the documents.

        Raises:
            EmbeddingUnavailable: if the embedder failed; documents embedded until then are stored.
            DatabaseUnavailable: if storing failed.
        """
        gradual = len(tasks) > self._limits.batch_texts
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prepare(tasks, Lookups(gradual=gradual)))
                group.create_task(
                    self._reuse(Batches(most=self._limits.batch_texts, gradual=gradual))
                )
                group.create_task(self._embed())
                group.create_task(self._write())
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        if self._broken:
            raise self._broken

    # Documents -> passages

    async def _prepare(self, tasks: Sequence[Task], lookups: Lookups) -> None:
        """Chunk and analyze the documents, and derive their kinds."""
        waiting = iter(tasks)
        while not self._broken and (some := list(islice(waiting, self._limits.preparing))):
            for prepared in await asyncio.gather(*map(self._prepared, some)):
                if prepared is not None and not prepared.missing:
                    await self._finished.put(prepared)
                    continue
                for lookup in lookups.add(prepared) if prepared else ():
                    await self._lookups.put(lookup)
        for lookup in lookups.rest():
            await self._lookups.put(lookup)
        await self._lookups.put(None)

    async def _prepared(self, task: Task) -> Prepared | None:
        try:
            return await self._steps.prepare(task)
        except EmbeddingUnavailable as exc:
            self._broken = exc
            return None
        except SearchError as exc:
            self._call.failed(task.document, exc)
            return None

    # Passages -> vectors

    async def _reuse(self, batches: Batches) -> None:
        """Fill in stored vectors, and pass the other passages on in batches."""
        while (lookup := await self._lookups.get()) is not None:
            stored = await self._steps.find_vectors([slot.text for slot in lookup])
            for slot in lookup:
                vector = stored.get(slot.text)
                if vector is not None:
                    self._call.result.reused += 1
                    await self._arrived(slot, vector)
                    continue
                for batch in batches.add(slot):
                    await self._batches.put(batch)
        self._ending = True
        for batch in batches.rest():
            await self._batches.put(batch)
        for _ in range(self._limits.embedders):
            await self._batches.put(None)

    async def _embed(self) -> None:
        """Embed the batches, several at the same time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._limits.embedders):
                group.create_task(self._embed_batches())
        await self._finished.put(None)

    async def _embed_batches(self) -> None:
        while (batch := await self._batches.get()) is not None:
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
        if self._steps.keep_refused:
            vectors, refused = await every_vector(self._steps.embed, texts)
            rows: Mapping[str, Vector | TextsRefused] = dict(zip(texts, vectors, strict=True))
        else:
            found = await vectors_or_refusals(self._steps.embed, texts)
            rows, refused = dict(zip(texts, found, strict=True)), {}
        errors = {texts[place]: error for place, error in refused.items()}
        for slot in batch:
            row = rows[slot.text]
            what = f"chunk {slot.place + 1} of {len(slot.part.passages)}"
            if not isinstance(row, TextsRefused):
                if error := errors.get(slot.text):
                    slot.part.partial.add(slot.place)
                    self._call.kept(slot.part.document, error.of(f"kept, but {what}"))
                await self._arrived(slot, row)
            elif slot.part is slot.whole:
                self._call.failed(slot.whole.document, row.of(what))
            else:
                source = slot.part.document.source
                self._call.result.warnings.append(f"{source} is left out: {what}: {row}")
                await self._arrived(slot, None)

    async def _arrived(self, slot: Slot, vector: Vector | None) -> None:
        """Add a vector; a document with all its vectors is finished."""
        slot.part.vectors[slot.place] = vector
        slot.whole.missing -= 1
        if not slot.whole.missing:
            await self._finished.put(slot.whole)

    # Vectors -> store

    async def _write(self) -> None:
        """Find duplicates and store documents, a group in one transaction."""
        open_ = True
        while open_ and (first := await self._finished.get()) is not None:
            group, chunks, size = [first], first.chunks, prepared_bytes(first)
            try:
                async with asyncio.timeout(0 if self._ending else _LINGER):
                    while chunks < self._limits.group_chunks and size < self._limits.group_bytes:
                        following = await self._finished.get()
                        if following is None:
                            open_ = False
                            break
                        group.append(following)
                        chunks += following.chunks
                        size += prepared_bytes(following)
            except TimeoutError:
                pass
            await self._call.stored(await self._steps.write(group))
