"""Vectors of a query, by model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from ability_search.collection import ModelInput
from ability_search.documents import Vector

Embed = Callable[[ModelInput], Awaitable[Sequence[Vector]]]
Unrelated = Callable[[ModelInput], Coroutine[Any, Any, Vector]]


class QueryVectors:
    """A query's vectors by model, computed once for all collections that share it.

    Args:
        embed: Returns the vectors of each phrasing by a model and its prefixes, shape (n, d).
        unrelated: Returns the vectors of unrelated texts, of unit length, shape (n, d), if cosines
            under several models are compared.
    """

    def __init__(self, embed: Embed, unrelated: Unrelated | None = None) -> None:
        self._embed = embed
        self._unrelated = unrelated
        self._requests: dict[ModelInput, asyncio.Task[Sequence[Vector]]] = {}
        self._comparisons: dict[ModelInput, asyncio.Task[Vector]] = {}
        self._milliseconds: dict[ModelInput, float] = {}

    def request(self, model: ModelInput) -> None:
        """Start the requests to ``model``, unless already started."""
        if model in self._requests:
            return
        self._requests[model] = asyncio.create_task(self._measured(model))
        if self._unrelated is not None:
            self._comparisons[model] = asyncio.create_task(self._unrelated(model))

    async def of(self, model: ModelInput, phrasing: int = 0) -> Vector:
        """Return the vectors of a phrasing, shape (n, d); raise the error of the request."""
        self.request(model)
        return (await asyncio.shield(self._requests[model]))[phrasing]

    async def chance(self, model: ModelInput, phrasing: int = 0) -> float:
        """Return the mean cosine of a phrasing to unrelated texts, 0 to 1; 0 if not compared.

        Raises:
            EmbeddingUnavailable: if the texts cannot be embedded.
        """
        if self._unrelated is None:
            return 0.0
        vectors = await self.of(model, phrasing)
        unrelated = await asyncio.shield(self._comparisons[model])
        length = float(np.linalg.norm(vectors[0])) or 1.0
        return max(0.0, float((unrelated @ vectors[0]).mean()) / length)

    def milliseconds(self, model: ModelInput) -> float:
        """Return how long ``model`` took to answer; 0 if it has not answered."""
        return self._milliseconds.get(model, 0.0)

    async def close(self) -> None:
        """Cancel pending requests and wait for them."""
        requests: list[asyncio.Task[Any]] = [*self._requests.values(), *self._comparisons.values()]
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _measured(self, model: ModelInput) -> Sequence[Vector]:
        started = time.perf_counter()
        try:
            return await self._embed(model)
        finally:
            self._milliseconds[model] = (time.perf_counter() - started) * 1e3
