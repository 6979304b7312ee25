"""Models that run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from kadi_localnet.models.crossencoder import CrossEncoder
from kadi_localnet.models.encoder import Encoder
from kadi_localnet.models.errors import DeadlinePassed, InvalidRequest, ModelsError, Overloaded
from kadi_localnet.models.lanes import NOBODY, Lanes, LanesClosed, Observer
from kadi_localnet.models.multilingual import MultilingualEncoder
from kadi_localnet.models.requests import Embedded, Reranked

T = TypeVar("T")

# Maximum characters per tokenizing unit, which then takes some tens of milliseconds.
_TOKENIZED_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class Runtime:
    """The shared lanes that models run on, and their limits."""

    lanes: Lanes
    batch_tokens: int
    """Tokens of a batch, about."""
    max_queued_texts: int
    """Texts that may wait for one model."""
    observer: Observer = NOBODY


class LocalModel:
    """A local embedding model that runs on shared lanes.

    A single text counts as a query and is run first. Several texts are sorted by length and
    embedded in runs of about ``batch_tokens`` tokens, which needs little padding.
    """

    def __init__(self, name: str, encoder: Encoder | MultilingualEncoder, runtime: Runtime) -> None:
        self.name = name
        self.encoder = encoder
        self._lanes = runtime.lanes
        # Otherwise the vector of a text would depend on the rest of its batch.
        self._batch_tokens = runtime.batch_tokens if encoder.independent else 1
        self._queries = Admission(name, most=runtime.max_queued_texts)
        self._documents = Admission(name, most=runtime.max_queued_texts)
        self._observer = runtime.observer

    @property
    def queued(self) -> int:
        """Number of texts in progress or waiting."""
        return self._queries.queued + self._documents.queued

    async def embed(
        self,
        texts: Sequence[str],
        *,
        timeout: float,
        dimensions: int | None = None,
    ) -> Embedded:
        """Embed ``texts``; those over the model's maximum number of tokens are truncated.

        Raises:
            InvalidRequest: if ``dimensions`` is given and differs from that of the model.
            Overloaded: if more texts would be queued than allowed.
            DeadlinePassed: after ``timeout`` seconds; units that have not begun are dropped.
        """
        if dimensions not in (None, self.encoder.dimensions):
            raise InvalidRequest(
                f"dimensions: {self.name} has {self.encoder.dimensions} and cannot be shortened",
                param="dimensions",
            )
        if len(texts) == 1:
            async with self._queries.admit(1, timeout=timeout):
                return await self._query(texts)
        async with self._documents.admit(len(texts), timeout=timeout):
            return await self._bulk(texts)

    async def _query(self, texts: Sequence[str]) -> Embedded:
        [(vectors, tokens)] = await self._lanes.run(
            [partial(self.encoder.embed, texts)], urgent=True
        )
        self._observer.ran(self.name, texts=1)
        return Embedded(vectors, tokens)

    async def _bulk(self, texts: Sequence[str]) -> Embedded:
        encoder = self.encoder
        if isinstance(encoder, MultilingualEncoder):
            done = await self._lanes.run([partial(encoder.embed, [text]) for text in texts])
            self._observer.ran(self.name, texts=len(texts))
            return Embedded(np.concatenate([row for row, _ in done]), sum(n for _, n in done))
        parts = [partial(encoder.tokenize, part) for part in _portions(texts)]
        ids = list(chain.from_iterable(await self._lanes.run(parts)))
        batches = plan_batches([len(tokens) for tokens in ids], budget=self._batch_tokens)
        runs = [partial(encoder.infer, _pick(ids, batch)) for batch in batches]
        vectors = np.empty((len(texts), encoder.dimensions), np.float32)
        for batch, rows in zip(batches, await self._lanes.run(runs), strict=True):
            vectors[batch] = rows
            self._observer.ran(self.name, texts=len(batch))
        return Embedded(vectors, sum(len(tokens) for tokens in ids))


class LocalReranker:
    """A local cross-encoder that runs on shared lanes.

    A search waits for its result, so it is run before bulk requests and in turn with queries.
    Batches are formed as in :class:`LocalModel`.
    """

    def __init__(self, name: str, encoder: CrossEncoder, runtime: Runtime) -> None:
        self.name = name
        self._encoder = encoder
        self._lanes = runtime.lanes
        self._batch_tokens = runtime.batch_tokens if encoder.independent else 1
        self._admission = Admission(name, most=runtime.max_queued_texts)
        self._observer = runtime.observer

    @property
    def queued(self) -> int:
        """Number of texts in progress or waiting."""
        return self._admission.queued

    async def rerank(self, query: str, texts: Sequence[str], *, timeout: float) -> Reranked:
        """Score ``texts`` by their relevance to ``query``; pairs that are too long are truncated.

        Raises:
            Overloaded: if more texts would be queued than allowed.
            DeadlinePassed: after ``timeout`` seconds; units that have not begun are dropped.
        """
        async with self._admission.admit(len(texts), timeout=timeout):
            return await self._scored(query, texts)

    async def _scored(self, query: str, texts: Sequence[str]) -> Reranked:
        parts = [
            partial(self._encoder.tokenize, query, part)
            for part in _portions(texts, extra=len(query))
        ]
        pairs = list(chain.from_iterable(await self._lanes.run(parts, urgent=True)))
        batches = plan_batches([len(pair.ids) for pair in pairs], budget=self._batch_tokens)
        runs = [partial(self._encoder.infer, _pick(pairs, batch)) for batch in batches]
        scores = np.empty(len(texts))
        for batch, rows in zip(batches, await self._lanes.run(runs, urgent=True), strict=True):
            scores[batch] = rows
            self._observer.ran(self.name, texts=len(batch))
        return Reranked(scores.tolist(), sum(len(pair.ids) for pair in pairs))


def plan_batches(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Group the positions of texts into batches, shortest text first.

    A batch padded to its longest text has at most ``budget`` tokens, unless it is a single text.
    Texts of equal length keep their order; without texts there are no batches.
    """
    batches: list[list[int]] = []
    current: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if current and (len(current) + 1) * lengths[position] > budget:
            batches.append(current)
            current = []
        current.append(position)
    if current:
        batches.append(current)
    return batches


def _pick(items: Sequence[T], positions: Sequence[int]) -> list[T]:
    return [items[position] for position in positions]


def _portions(texts: Sequence[str], *, extra: int = 0) -> Iterator[Sequence[str]]:
    """Split texts into runs of about ``_TOKENIZED_AT_ONCE`` characters.

    ``extra`` is added to the length of each text.
    """
    start = size = 0
    for position, text in enumerate(texts):
        if position > start and size + len(text) + extra > _TOKENIZED_AT_ONCE:
            yield texts[start:position]
            start, size = position, 0
        size += len(text) + extra
    yield texts[start:]


class Admission:
    """The queue length of the model ``name``, limited to ``most`` texts."""

    def __init__(self, name: str, *, most: int) -> None:
        self._name = name
        self._most = most
        self.queued = 0
        """Number of texts in progress or waiting."""

    @asynccontextmanager
    async def admit(self, count: int, *, timeout: float) -> AsyncIterator[None]:
        """Count ``count`` texts as queued during the block, for at most ``timeout`` seconds.

        Raises:
            Overloaded: if more texts would be queued than allowed. An idle model accepts a
                request of any size.
            DeadlinePassed: after ``timeout`` seconds.
            ModelsError: if the lanes are closed meanwhile.
        """
        if self.queued and self.queued + count > self._most:
            raise Overloaded(
                f"{self.queued} texts are queued for {self._name}; try again shortly",
                retry_after=1.0,
            )
        self.queued += count
        try:
            async with asyncio.timeout(timeout):
                yield
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        except LanesClosed as exc:
            raise ModelsError(str(exc)) from exc
        finally:
            self.queued -= count
