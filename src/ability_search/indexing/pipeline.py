"""Chunking, embedding and storing, overlapped: none of the stages waits for another's turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ability_search.documents import Document, Vector
from ability_search.errors import (
    EmbeddingUnavailable,
    SearchError,
    TextsRefused,
    first_failure,
)
from ability_search.indexing.preparing import Prepared

_LOOKED_UP = 64
"""Passages whose vectors are looked for at a time."""
_FEW = 8
"""Passages of the first batch of many documents, and the least of the last one."""
_LINGER = 1.0
"""Seconds that finished documents wait for others to share their transaction."""


class Task(NamedTuple):
    """A document to be stored under the hash of its content."""

    document: Document
    content_hash: str


class Slot(NamedTuple):
    """One passage of a document or of its aspects, waiting for its vector."""

    whole: Prepared
    part: Prepared
    place: int

    @property
    def text(self) -> str:
        """What is embedded of the passage."""
        return self.part.texts[self.place]


Prepare = Callable[[Task], Awaitable[Prepared]]
Reuse = Callable[[list[str]], Awaitable[Mapping[str, Vector]]]
Embed = Callable[[list[str]], Awaitable[Vector]]
Write = Callable[[list[Prepared]], Awaitable[None]]
Fail = Callable[[Document, SearchError], None]


@dataclass(slots=True)
class Pipeline:
    """Takes documents in and stores them, a bounded number at a time.

    Of many documents the first batches are small, each twice as large as the one before, and the
    last ones again, each half of what is left: the embedder has something to do soon, and little
    is left to store when it ends. Few documents go in one batch, which suits one that is far away.

    Args:
        prepare: Cuts a document. A :class:`SearchError` fails the document.
        reuse: Finds the vectors of those texts that were embedded before. It must not raise.
        embed: Embeds a batch of texts.
        write: Stores documents whose vectors are complete, in one transaction.
        fail: Is told of each document that could not be done, with the reason.
        size: Estimates the bytes of a finished document in a statement.
        abreast: Documents that are prepared at the same time.
        batch_texts: Texts in a batch.
        embedders: Batches embedded at the same time.
        group_chunks: Chunks after which a transaction is full.
        group_bytes: Bytes after which a transaction is full.
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
    """Passages that took a vector which was there before."""
    _cut: asyncio.Queue[list[Slot] | None] = field(init=False)
    _batches: asyncio.Queue[list[Slot] | None] = field(init=False)
    _finished: asyncio.Queue[Prepared | None] = field(init=False)
    _broken: EmbeddingUnavailable | None = field(init=False, default=None)
    _gradual: bool = field(init=False, default=False)
    _ending: bool = field(init=False, default=False)
    """Whether all that is left has been handed to the embedder, or nearly so."""

    def __post_init__(self) -> None:
        self._cut = asyncio.Queue(self.embedders)
        self._batches = asyncio.Queue(self.embedders)
        self._finished = asyncio.Queue(self.group_chunks)

    async def run(self, tasks: Sequence[Task]) -> None:
        """Store all documents; those that were finished are stored whatever happens to others.

        Raises:
            EmbeddingUnavailable: if the embedder gave out; what was embedded by then is stored.
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
        # At first no more than the first two batches take.
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
        """Fill in the vectors that there are, and hand on the other passages in batches."""
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
                # One full batch is kept, for the last ones to be made of.
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
        """Embed a batch; if the embedder objects to its texts, find the documents it means.

        An aspect that it objects to is left out, its document is not.
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
        """Take a vector in; the document goes on with its last one."""
        slot.part.vectors[slot.place] = vector
        slot.whole.missing -= 1
        if not slot.whole.missing:
            await self._finished.put(slot.whole)

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
    """Runs of slots of one document, or of one of its aspects."""
    run: list[Slot] = []
    for slot in slots:
        if run and slot.part is not run[-1].part:
            yield run
            run = []
        run.append(slot)
    if run:
        yield run
