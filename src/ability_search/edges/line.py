"""The connection that calls go over."""

from __future__ import annotations

import asyncio

from ability_search.errors import SearchError
from kadi_client import Connection, NotConnected


class Unavailable(SearchError):
    """Nobody on the network answers: no broker, or no worker."""

    code = "unavailable"
    retryable = True
    default_hint = "Check with `ability-search doctor` which parts are connected, then call again."


class Line:
    """The connection to the network; another one may take its place.

    Args:
        patience: Seconds to wait for one that is connected.
    """

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._there = asyncio.Event()
        self._connection: Connection | None = None

    def use(self, connection: Connection | None) -> None:
        """From now on use this one; ``None`` means that there is none yet."""
        self._connection = connection
        if connection is None:
            self._there.clear()
        else:
            self._there.set()

    async def connection(self) -> Connection:
        """The connection, with a session at this moment.

        Raises:
            Unavailable: if there is none in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                return await self._next()
        except (TimeoutError, NotConnected) as exc:
            raise Unavailable("the broker cannot be reached", retry_after=1.0) from exc

    async def _next(self) -> Connection:
        while True:
            await self._there.wait()
            connection = self._connection
            if connection is None:
                continue
            try:
                await connection.wait_connected()
            except NotConnected:
                if connection is self._connection:
                    raise
            else:
                return connection
