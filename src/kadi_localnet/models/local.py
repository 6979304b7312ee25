"""Models that run in this process, on shared threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kadi_localnet.models.config import ModelsConfig
from kadi_localnet.models.errors import DeadlinePassed, ModelsError, Overloaded
from kadi_localnet.models.lanes import Lanes, LanesClosed
from kadi_localnet.models.requests import Vectors

# Maximum characters per tokenizing unit, which then takes some tens of milliseconds.
_TOKENIZED_AT_ONCE = 100_000


class Model(Protocol):
    """A loaded model, used by several threads."""

    @property
    def dimensions(self) -> int:
        """Numbers of the output for a text."""

    @property
    def max_tokens(self) -> int:
        """Tokens after which texts are truncated, or divided."""

    @property
    def tokenizer(self) -> Path | None:
        """Path of its ``tokenizer.json``."""

    @property
    def independent(self) -> bool:
        """Whether texts may be run together."""

    def tokenize(self, texts: Sequence[str], query: str | None = None) -> Sequence[Any]:
        """Tokenize texts, behind a query if there is one; the results have a length in tokens."""

    def infer(self, batch: Sequence[Any]) -> Vectors:
        """Run tokenized texts at once: shape (len(batch), dimensions)."""


class Observer(Protocol):
    """Callbacks in the event loop, which must not block."""

    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        """Record the end of a request to a model by its primary name; ``code`` may be ``ok``."""

    def ran(self, model: str, *, texts: int) -> None:
        """Record one run of a model over a batch of texts."""


@dataclass(slots=True, eq=False)
class LocalModel:
    """A model that runs on shared lanes: an embedding model, or a reranker.

    A single text counts as a query and is run first. Several texts are sorted by length and run in
    batches of about ``batch_tokens`` tokens, which needs little padding. A search waits for texts
    that are reranked, so they are run before other texts, in turn with queries.
    """

    name: str
    model: Model
    lanes: Lanes
    config: ModelsConfig
    observer: Observer | None = None
    _queued: dict[str, int] = field(default_factory=lambda: {"queries": 0, "others": 0})

    @property
    def queued(self) -> int:
        """Number of texts in progress or waiting."""
        return sum(self._queued.values())

    async def run(
        self, texts: Sequence[str], *, query: str | None = None, timeout: float
    ) -> tuple[Vectors, int]:
        """Embed texts, or score them for ``query``; texts that are too long are truncated.

        Returns:
            The output of shape (len(texts), dimensions), and the number of tokens read.

        Raises:
            Overloaded: if more texts would be queued than allowed. An idle model accepts a
                request of any size, and bulk requests do not keep queries out.
            DeadlinePassed: after ``timeout`` seconds; units that have not begun are dropped.
            ModelsError: if the lanes are closed meanwhile.
        """
        alone = len(texts) == 1 and query is None
        queue = "queries" if alone else "others"
        queued = self._queued[queue]
        if queued and queued + len(texts) > self.config.max_queued_texts:
            raise Overloaded(
                f"{queued} texts are queued for {self.name}; try again shortly", retry_after=1.0
            )
        self._queued[queue] += len(texts)
        try:
            async with asyncio.timeout(timeout):
                return await (self._at_once(texts) if alone else self._in_batches(texts, query))
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        except LanesClosed as exc:
            raise ModelsError(str(exc)) from exc
        finally:
            self._queued[queue] -= len(texts)

    async def _at_once(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        def answer() -> tuple[Vectors, int]:
            tokenized = self.model.tokenize(texts)
            return self.model.infer(tokenized), sum(map(len, tokenized))

        [answered] = await self.lanes.run([answer], urgent=True)
        self._ran(len(texts))
        return answered

    async def _in_batches(self, texts: Sequence[str], query: str | None) -> tuple[Vectors, int]:
        portions = _portions(texts, extra=len(query or ""))
        parts = [partial(self.model.tokenize, part, query) for part in portions]
        urgent = query is not None
        tokenized = list(chain.from_iterable(await self.lanes.run(parts, urgent=urgent)))
        # Otherwise the output for a text would depend on the rest of its batch.
        budget = self.config.batch_tokens if self.model.independent else 1
        batches = plan_batches(list(map(len, tokenized)), budget=budget)
        runs = [
            partial(self.model.infer, [tokenized[position] for position in batch])
            for batch in batches
        ]
        done = await self.lanes.run(runs, urgent=urgent)
        for batch in batches:
            self._ran(len(batch))
        outputs = np.empty((len(texts), *done[0].shape[1:]), done[0].dtype)
        outputs[list(chain.from_iterable(batches))] = np.concatenate(done)
        return outputs, sum(map(len, tokenized))

    def _ran(self, texts: int) -> None:
        if self.observer:
            self.observer.ran(self.name, texts=texts)


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


def _portions(texts: Sequence[str], *, extra: int) -> Iterator[Sequence[str]]:
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
