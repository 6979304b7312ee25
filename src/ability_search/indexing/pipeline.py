"""Chunking, embedding and storing, overlapped: none of the stages waits for another's turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ability_search.documents import Document, Vector
from ability_search.errors import (
    EmbeddingUnavailable,
    SearchError,
    TextsRefused,
    first_failure,
)
from ability_search.indexing.preparing import Prepared

_LINGER = 1.0
"""Seconds that finished documents wait for others to share their transaction."""


class Task(NamedTuple):
    """A document to be stored under the hash of its content."""

    document: Document
    content_hash: str


class Slot(NamedTuple):
    """One passage of a document, waiting for its vector."""

    prepared: Prepared
    place: int

    @property
    def text(self) -> str:
        """What is embedded of the passage."""
        return self.prepared.texts[self.place]


Prepare = Callable[[Task], Prepared]
Embed = Callable[[list[str]], Awaitable[Vector]]
Write = Callable[[list[Prepared]], Awaitable[None]]
Fail = Callable[[Document, SearchError], None]


@dataclass(slots=True)
class Pipeline:
    """Takes documents in and stores them, a bounded number at a time.

    Args:
        prepare: Cuts a document; runs in a thread. A :class:`SearchError` fails the document.
        embed: Embeds a batch of texts.
        write: Stores documents whose vectors are complete, in one transaction.
        fail: Is told of each document that could not be done, with the reason.
        size: Estimates the bytes of a finished document in a statement.
        batch_texts: Texts in a batch.
        embedders: Batches embedded at the same time.
        group_chunks: Chunks after which a transaction is full.
        group_bytes: Bytes after which a transaction is full.
    """

    prepare: Prepare
    embed: Embed
    write: Write
    fail: Fail
    size: Callable[[Prepared], int]
    batch_texts: int
    embedders: int
    group_chunks: int
    group_bytes: int
    _batches: asyncio.Queue[list[Slot] | None] = field(init=False)
    _finished: asyncio.Queue[Prepared | None] = field(init=False)
    _broken: EmbeddingUnavailable | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._batches = asyncio.Queue(self.embedders)
        self._finished = asyncio.Queue(self.group_chunks)

    async def run(self, tasks: Iterable[Task]) -> None:
        """Store all documents; those that were finished are stored whatever happens to others.

        Raises:
            EmbeddingUnavailable: if the embedder gave out; what was embedded by then is stored.
            DatabaseUnavailable: if storing failed.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prepare_all(tasks))
                group.create_task(self._embed_all())
                group.create_task(self._write_all())
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        if self._broken:
            raise self._broken

    async def _prepare_all(self, tasks: Iterable[Task]) -> None:
        batch: list[Slot] = []
        for task in tasks:
            if self._broken:
                break
            try:
                prepared = await asyncio.to_thread(self.prepare, task)
            except SearchError as exc:
                self.fail(task.document, exc)
                continue
            for place in range(len(prepared.passages)):
                batch.append(Slot(prepared, place))
                if len(batch) == self.batch_texts:
                    await self._batches.put(batch)
                    batch = []
        if batch:
            await self._batches.put(batch)
        for _ in range(self.embedders):
            await self._batches.put(None)

    async def _embed_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.embedders):
                group.create_task(self._embed_batches())
        await self._finished.put(None)

    async def _embed_batches(self) -> None:
        while (batch := await self._batches.get()) is not None:
            if self._broken:
                continue
            try:
                await self._embed_slots(batch)
            except EmbeddingUnavailable as exc:
                self._broken = exc

    async def _embed_slots(self, slots: list[Slot]) -> None:
        """Embed a batch; if the embedder objects to its texts, find the documents it means."""
        documents = list(_by_document(slots))
        try:
            vectors = await self._embed_unique(slots)
        except TextsRefused as exc:
            if len(documents) == 1:
                self.fail(slots[0].prepared.document, exc)
                return
            for part in documents:
                await self._embed_slots(part)
            return
        for slot, vector in zip(slots, vectors, strict=True):
            slot.prepared.vectors[slot.place] = vector
            slot.prepared.missing -= 1
            if not slot.prepared.missing:
                await self._finished.put(slot.prepared)

    async def _embed_unique(self, slots: list[Slot]) -> list[Vector]:
        """Vectors of the slots; texts that occur several times are embedded once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(s.text for s in slots))}
        vectors = await self.embed(list(places))
        return [vectors[places[slot.text]] for slot in slots]

    async def _write_all(self) -> None:
        open_ = True
        while open_:
            group: list[Prepared] = []
            first = await self._finished.get()
            if first is None:
                return
            group.append(first)
            chunks, size = len(first.passages), self.size(first)
            try:
                async with asyncio.timeout(_LINGER):
                    while chunks < self.group_chunks and size < self.group_bytes:
                        following = await self._finished.get()
                        if following is None:
                            open_ = False
                            break
                        group.append(following)
                        chunks += len(following.passages)
                        size += self.size(following)
            except TimeoutError:
                pass
            await self.write(group)


def _by_document(slots: list[Slot]) -> Iterator[list[Slot]]:
    """Runs of slots of one document."""
    run: list[Slot] = []
    for slot in slots:
        if run and slot.prepared is not run[-1].prepared:
            yield run
            run = []
        run.append(slot)
    if run:
        yield run
