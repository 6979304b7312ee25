"""Models that run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain

import numpy as np

from kadi_local.models.encoder import Encoder, Ids
from kadi_local.models.errors import DeadlinePassed, InvalidRequest, ModelsError, Overloaded
from kadi_local.models.lanes import Lanes, LanesClosed
from kadi_local.models.requests import Embedded

# Characters that one unit of tokenizing takes: some tens of milliseconds.
_TOKENIZED_AT_ONCE = 100_000


class LocalModel:
    """An encoder on shared lanes.

    A single text is taken for a query and goes first; texts that come together are sorted by
    length and embedded in runs of about ``batch_tokens`` tokens, so that little is padded.
    """

    def __init__(
        self,
        name: str,
        encoder: Encoder,
        lanes: Lanes,
        *,
        batch_tokens: int,
        max_queued_texts: int,
    ) -> None:
        self.name = name
        self.encoder = encoder
        self._lanes = lanes
        # Without this the vector of a text would depend on its neighbours.
        self._batch_tokens = batch_tokens if encoder.independent else 1
        self._max_queued = max_queued_texts
        self._queued = {"query": 0, "bulk": 0}

    async def embed(
        self,
        texts: Sequence[str],
        *,
        timeout: float,
        dimensions: int | None = None,
        api_key: str | None = None,
    ) -> Embedded:
        """Embed ``texts``; those over the model's maximum of tokens are cut there.

        ``api_key`` is not needed here.

        Raises:
            InvalidRequest: if ``dimensions`` is given and not the model's own number.
            Overloaded: if more texts are queued than allowed.
            DeadlinePassed: after ``timeout`` seconds; what had not begun is dropped.
        """
        if dimensions not in (None, self.encoder.dimensions):
            raise InvalidRequest(
                f"dimensions: {self.name} has {self.encoder.dimensions} and cannot be shortened",
                param="dimensions",
            )
        with self._admitted(len(texts)):
            try:
                async with asyncio.timeout(timeout):
                    if len(texts) == 1:
                        return await self._query(texts)
                    return await self._bulk(texts)
            except TimeoutError:
                raise DeadlinePassed(timeout) from None
            except LanesClosed as exc:
                raise ModelsError(str(exc)) from exc

    async def _query(self, texts: Sequence[str]) -> Embedded:
        [(vectors, tokens)] = await self._lanes.run(
            [partial(self.encoder.embed, texts)], urgent=True
        )
        return Embedded(vectors, tokens)

    async def _bulk(self, texts: Sequence[str]) -> Embedded:
        parts = [partial(self.encoder.tokenize, part) for part in _portions(texts)]
        ids = list(chain.from_iterable(await self._lanes.run(parts)))
        batches = plan_batches([len(tokens) for tokens in ids], budget=self._batch_tokens)
        runs = [partial(self.encoder.infer, _pick(ids, batch)) for batch in batches]
        vectors = np.empty((len(texts), self.encoder.dimensions), np.float32)
        for batch, rows in zip(batches, await self._lanes.run(runs), strict=True):
            vectors[batch] = rows
        return Embedded(vectors, sum(len(tokens) for tokens in ids))

    @contextmanager
    def _admitted(self, count: int) -> Iterator[None]:
        lane = "query" if count == 1 else "bulk"
        # An idle model takes any request that is within the limits of one.
        if self._queued[lane] and self._queued[lane] + count > self._max_queued:
            raise Overloaded(
                f"{self._queued[lane]} texts are queued for {self.name}; call again shortly",
                retry_after=1.0,
            )
        self._queued[lane] += count
        try:
            yield
        finally:
            self._queued[lane] -= count


def plan_batches(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Positions of texts, shortest first, cut where padding to the longest exceeds ``budget``.

    Each batch has at least one text; texts of one length keep their order; no text gives none.
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


def _pick(ids: Sequence[Ids], positions: Sequence[int]) -> list[Ids]:
    return [ids[position] for position in positions]


def _portions(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start = size = 0
    for position, text in enumerate(texts):
        if position > start and size + len(text) > _TOKENIZED_AT_ONCE:
            yield texts[start:position]
            start, size = position, 0
        size += len(text)
    yield texts[start:]
