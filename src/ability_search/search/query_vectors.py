"""Vectors of a query, by model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ability_search.documents import Vector


class QueryVectors:
    """A query's vectors by model, computed once for all collections that share it.

    Args:
        embed: Returns the vectors by a model, shape (n, d).
    """

    def __init__(self, embed: Callable[[str], Awaitable[Vector]]) -> None:
        self._embed = embed
        self._requests: dict[str, asyncio.Task[Vector]] = {}
        self._milliseconds: dict[str, float] = {}

    def request(self, model: str) -> None:
        """Start the request to ``model``, unless already started."""
        if model not in self._requests:
            self._requests[model] = asyncio.create_task(self._measured(model))

    async def of(self, model: str) -> Vector:
        """Return the vectors by ``model``, shape (n, d); raise the error of the request."""
        self.request(model)
        return await asyncio.shield(self._requests[model])

    def milliseconds(self, model: str) -> float:
        """Return how long ``model`` took to answer; 0 if it has not answered."""
        return self._milliseconds.get(model, 0.0)

    async def close(self) -> None:
        """Cancel pending requests and wait for them."""
        for request in self._requests.values():
            request.cancel()
        await asyncio.gather(*self._requests.values(), return_exceptions=True)

    async def _measured(self, model: str) -> Vector:
        started = time.perf_counter()
        try:
            return await self._embed(model)
        finally:
            self._milliseconds[model] = (time.perf_counter() - started) * 1e3
