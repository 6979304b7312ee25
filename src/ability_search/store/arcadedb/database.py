"""Running the statements of the ArcadeDB store: schema on demand, retries, missing databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from ability_search.errors import StatementRefused
from ability_search.ports import Store
from ability_search.store.arcadedb import Statement, schema
from ability_search.store.arcadedb.layout import check_new

T = TypeVar("T")

_TRIES = 8
_PAUSE = 0.1
"""Seconds between attempts."""


class Database:
    """Base of the parts of the ArcadeDB store.

    Args:
        client: Runs scripts over the ``arcade-*`` tools.
    """

    def __init__(self, client: Store) -> None:
        self._client = client
        self._amended = False
        self._amending = asyncio.Lock()

    async def read(self, statement: Statement) -> Any:
        """Run a read; if a type is missing, create the schema and run it once more.

        This adds the types that a database of an earlier version of this ability lacks.

        Raises:
            StatementRefused: on the second attempt at the latest.
        """
        return await self._amend(partial(self._client.read, *statement))

    async def rows(self, statement: Statement) -> list[Any]:
        """Read rows; none if nothing was stored yet. Raises as :func:`.layout.check_new`."""
        try:
            return list(await self._client.read(*statement))
        except StatementRefused as exc:
            await check_new(self._client, exc)
            return []

    async def write(self, statement: Statement) -> Any:
        """Write; create the schema first if it is missing, and retry on conflicts.

        Raises as :meth:`rows`.
        """
        run = partial(self._client.write, *statement)
        try:
            return await insist(run, "conflict")
        except StatementRefused as exc:
            await check_new(self._client, exc)
            await self._create_schema()
            return await insist(run, "conflict")

    async def _amend(self, run: Callable[[], Awaitable[T]]) -> T:
        try:
            return await run()
        except StatementRefused as exc:
            if exc.reason != "missing_type":
                raise
        async with self._amending:
            if not self._amended:
                await self._create_schema()
                self._amended = True
        return await run()

    async def _create_schema(self) -> None:
        # Another worker may be creating it at the same time.
        await insist(partial(self._client.write, *schema()), "duplicate", "conflict")


async def insist(run: Callable[[], Awaitable[T]], *passing: str) -> T:
    """Run a statement; retry if it is refused for one of these reasons."""
    for _ in range(_TRIES - 1):
        try:
            return await run()
        except StatementRefused as exc:
            if exc.reason not in passing:
                raise
        await asyncio.sleep(_PAUSE)
    return await run()
