"""Vectors of a query, by model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ability_search.collection import ModelInput
from ability_search.documents import Vector


class QueryVectors:
    """A query's vectors by model, computed once for all collections that share it.

    Args:
        embed: Returns the vectors by a model and its prefixes, shape (n, d).
    """

    def __init__(self, embed: Callable[[ModelInput], Awaitable[Vector]]) -> None:
        self._embed = embed
        self._requests: dict[ModelInput, asyncio.Task[Vector]] = {}
        self._milliseconds: dict[ModelInput, float] = {}

    def request(self, model: ModelInput) -> None:
        """Start the request to ``model``, unless already started."""
        if model not in self._requests:
            self._requests[model] = asyncio.create_task(self._measured(model))

    async def of(self, model: ModelInput) -> Vector:
        """Return the vectors by ``model``, shape (n, d); raise the error of the request."""
        self.request(model)
        return await asyncio.shield(self._requests[model])

    def milliseconds(self, model: ModelInput) -> float:
        """Return how long ``model`` took to answer; 0 if it has not answered."""
        return self._milliseconds.get(model, 0.0)

    async def close(self) -> None:
        """Cancel pending requests and wait for them."""
        for request in self._requests.values():
            request.cancel()
        await asyncio.gather(*self._requests.values(), return_exceptions=True)

    async def _measured(self, model: ModelInput) -> Vector:
        started = time.perf_counter()
        try:
            return await self._embed(model)
        finally:
            self._milliseconds[model] = (time.perf_counter() - started) * 1e3
