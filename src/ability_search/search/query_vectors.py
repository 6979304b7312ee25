"""Vectors of a query, by model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ability_search.collection import ModelInput
from ability_search.documents import Vector

Embed = Callable[[ModelInput], Awaitable[Sequence[Vector]]]


class QueryVectors:
    """A query's vectors by model, computed once for all collections that share it.

    Args:
        embed: Returns the vectors of each phrasing by a model and its prefixes, shape (n, d).
    """

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._requests: dict[ModelInput, asyncio.Task[Sequence[Vector]]] = {}
        self._milliseconds: dict[ModelInput, float] = {}

    def request(self, model: ModelInput) -> None:
        """Start the requests to ``model``, unless already started."""
        if model not in self._requests:
            self._requests[model] = asyncio.create_task(self._measured(model))

    async def of(self, model: ModelInput, phrasing: int = 0) -> Vector:
        """Return the vectors of a phrasing, shape (n, d); raise the error of the request."""
        self.request(model)
        return (await asyncio.shield(self._requests[model]))[phrasing]

    def milliseconds(self, model: ModelInput) -> float:
        """Return how long ``model`` took to answer; 0 if it has not answered."""
        return self._milliseconds.get(model, 0.0)

    async def close(self) -> None:
        """Cancel pending requests and wait for them."""
        for request in self._requests.values():
            request.cancel()
        await asyncio.gather(*self._requests.values(), return_exceptions=True)

    async def _measured(self, model: ModelInput) -> Sequence[Vector]:
        started = time.perf_counter()
        try:
            return await self._embed(model)
        finally:
            self._milliseconds[model] = (time.perf_counter() - started) * 1e3
