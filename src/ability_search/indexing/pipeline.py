"""A pipeline that chunks, embeds and stores documents concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ability_search.documents import Document, Vector
from ability_search.errors import EmbeddingUnavailable, SearchError, TextsRefused, first_failure
from ability_search.indexing.preparing import Prepared

_LOOKED_UP = 64
"""Passages per lookup of stored vectors."""
_FEW = 8
"""Passages in the first batch of many documents, and minimum size of the last batches."""
_LINGER = 1.0
"""Seconds that a finished document waits for others to share a transaction."""


class Task(NamedTuple):
    """A document to store, with its content hash."""

    document: Document
    content_hash: str


class Slot(NamedTuple):
    """A passage of a document or of a derived kind that waits for its vector."""

    whole: Prepared
    part: Prepared
    place: int

    @property
    def text(self) -> str:
        """The text to embed for the passage."""
        return self.part.texts[self.place]


Prepare = Callable[[Task], Awaitable[Prepared]]
Reuse = Callable[[list[str]], Awaitable[Mapping[str, Vector]]]
Embed = Callable[[list[str]], Awaitable[Vector]]
Write = Callable[[list[Prepared]], Awaitable[None]]
Fail = Callable[[Document, SearchError], None]


@dataclass(slots=True)
class Pipeline:
    """Prepares, embeds and stores documents, with a bounded number in progress.

    With many documents the first batches are small, each twice as large as the one before, and so
    are the last ones, each half of what is left: the embedder starts early, and little is left to
    store when it ends. Few documents go in one batch, which suits a remote embedder.

    Args:
        prepare: Chunks a document. A :class:`SearchError` fails the document.
        reuse: Returns the stored vectors of texts. It must not raise.
        embed: Embeds a batch of texts.
        write: Stores documents with complete vectors in one transaction.
        fail: Called with each document that failed and the reason.
        size: Estimates the bytes of a finished document in a statement.
        abreast: Documents prepared at the same time.
        batch_texts: Maximum number of texts in a batch.
        embedders: Batches embedded at the same time.
        group_chunks: Number of chunks from which a transaction is full.
        group_bytes: Number of bytes from which a transaction is full.
    """

    prepare: Prepare
    reuse: Reuse
    embed: Embed
    write: Write
    fail: Fail
    size: Callable[[Prepared], int]
    abreast: int
    batch_texts: int
    embedders: int
    group_chunks: int
    group_bytes: int
    reused: int = field(init=False, default=0)
    """Number of passages with a reused vector."""
    _cut: asyncio.Queue[list[Slot] | None] = field(init=False)
    _batches: asyncio.Queue[list[Slot] | None] = field(init=False)
    _finished: asyncio.Queue[Prepared | None] = field(init=False)
    _broken: EmbeddingUnavailable | None = field(init=False, default=None)
    _gradual: bool = field(init=False, default=False)
    _ending: bool = field(init=False, default=False)
    """True if only the last batches are left for the embedder."""

    def __post_init__(self) -> None:
        self._cut = asyncio.Queue(self.embedders)
        self._batches = asyncio.Queue(self.embedders)
        self._finished = asyncio.Queue(self.group_chunks)

    async def run(self, tasks: Sequence[Task]) -> None:
        """Store all documents; the failure of one does not affect the others.

        Raises:
            EmbeddingUnavailable: if the embedder failed; documents embedded until then are stored.
            DatabaseUnavailable: if storing failed.
        """
        self._gradual = len(tasks) > self.batch_texts
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prepare_all(tasks))
                group.create_task(self._reuse_all())
                group.create_task(self._embed_all())
                group.create_task(self._write_all())
        except ExceptionGroup as failures:
            raise first_failure(failures) from failures
        if self._broken:
            raise self._broken

    async def _prepare_all(self, tasks: Sequence[Task]) -> None:
        batch: list[Slot] = []
        # The first lookup covers only the first two batches.
        size = 3 * _FEW if self._gradual else _LOOKED_UP
        waiting = iter(tasks)
        while not self._broken and (some := list(islice(waiting, self.abreast))):
            for prepared in filter(None, await asyncio.gather(*map(self._prepared, some))):
                for slot in _slots(prepared):
                    batch.append(slot)
                    if len(batch) == size:
                        await self._cut.put(batch)
                        batch, size = [], _LOOKED_UP
        if batch:
            await self._cut.put(batch)
        await self._cut.put(None)

    async def _prepared(self, task: Task) -> Prepared | None:
        try:
            return await self.prepare(task)
        except SearchError as exc:
            self.fail(task.document, exc)
            return None

    async def _reuse_all(self) -> None:
        """Fill in stored vectors, and pass the other passages on in batches."""
        left: list[Slot] = []
        size = min(_FEW, self.batch_texts) if self._gradual else self.batch_texts
        while (slots := await self._cut.get()) is not None:
            known = await self.reuse([slot.text for slot in slots])
            for slot in slots:
                vector = known.get(slot.text)
                if vector is not None:
                    self.reused += 1
                    await self._arrived(slot, vector)
                    continue
                left.append(slot)
                # One full batch is kept back, to be split into the last, smaller ones.
                kept = size if self._gradual and size == self.batch_texts else 0
                if len(left) == size + kept:
                    await self._batches.put(left[:size])
                    left, size = left[size:], min(2 * size, self.batch_texts)
        self._ending = True
        while left:
            share = len(left) // 2 if self._gradual and len(left) > 2 * _FEW else len(left)
            size = min(share, self.batch_texts)
            await self._batches.put(left[:size])
            left = left[size:]
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
        """Embed a batch; if the embedder refuses its texts, find the refused documents.

        A refused derived kind is skipped; its document is kept.
        """
        parts = list(_by_part(slots))
        try:
            vectors = await self._embed_unique(slots)
        except TextsRefused as exc:
            if len(parts) > 1:
                for part in parts:
                    await self._embed_slots(part)
            elif slots[0].part is slots[0].whole:
                self.fail(slots[0].whole.document, exc)
            else:
                for slot in slots:
                    await self._arrived(slot, None)
            return
        for slot, vector in zip(slots, vectors, strict=True):
            await self._arrived(slot, vector)

    async def _arrived(self, slot: Slot, vector: Vector | None) -> None:
        """Add a vector; a document with all its vectors is finished."""
        slot.part.vectors[slot.place] = vector
        slot.whole.missing -= 1
        if not slot.whole.missing:
            await self._finished.put(slot.whole)

    async def _embed_unique(self, slots: list[Slot]) -> list[Vector]:
        """Return the vectors of the slots; repeated texts are embedded once."""
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
            chunks, size = first.chunks, self.size(first)
            try:
                async with asyncio.timeout(0 if self._ending else _LINGER):
                    while chunks < self.group_chunks and size < self.group_bytes:
                        following = await self._finished.get()
                        if following is None:
                            open_ = False
                            break
                        group.append(following)
                        chunks += following.chunks
                        size += self.size(following)
            except TimeoutError:
                pass
            await self.write(group)


def _slots(prepared: Prepared) -> Iterator[Slot]:
    for part in prepared.parts:
        for place in range(len(part.passages)):
            yield Slot(prepared, part, place)


def _by_part(slots: list[Slot]) -> Iterator[list[Slot]]:
    """Yield runs of slots of the same document or derived kind."""
    run: list[Slot] = []
    for slot in slots:
        if run and slot.part is not run[-1].part:
            yield run
            run = []
        run.append(slot)
    if run:
        yield run
