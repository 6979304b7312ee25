"""The vectors of a query."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ability_search.documents import Vector


class QueryVectors:
    """A query's vectors by each model, asked for once however many collections share it.

    Args:
        embed: Gives the vectors by a model, shape (n, d).
    """

    def __init__(self, embed: Callable[[str], Awaitable[Vector]]) -> None:
        self._embed = embed
        self._asked: dict[str, asyncio.Task[Vector]] = {}
        self._took: dict[str, float] = {}

    def ask(self, model: str) -> None:
        """Begin to ask ``model``, unless it was asked already."""
        if model not in self._asked:
            self._asked[model] = asyncio.create_task(self._measured(model))

    async def of(self, model: str) -> Vector:
        """The vectors by ``model``, or what came of asking; shape (n, d)."""
        self.ask(model)
        return await asyncio.shield(self._asked[model])

    def milliseconds(self, model: str) -> float:
        """How long ``model`` took to answer; 0 if it has not."""
        return self._took.get(model, 0.0)

    async def close(self) -> None:
        """Stop asking; nothing is left running."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _measured(self, model: str) -> Vector:
        started = time.perf_counter()
        try:
            return await self._embed(model)
        finally:
            self._took[model] = (time.perf_counter() - started) * 1e3
