"""The vectors of a query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ability_search.documents import Vector


class QueryVectors:
    """A query's vectors: one a model, asked for once however many collections share it."""

    def __init__(self, embed: Callable[[str], Awaitable[Vector]]) -> None:
        self._embed = embed
        self._asked: dict[str, asyncio.Future[Vector]] = {}

    async def of(self, model: str) -> Vector:
        """The vector by ``model``; shape (d,)."""
        if model not in self._asked:
            self._asked[model] = asyncio.ensure_future(self._embed(model))
        return await asyncio.shield(self._asked[model])

    async def close(self) -> None:
        """Stop asking; nothing is left running."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
