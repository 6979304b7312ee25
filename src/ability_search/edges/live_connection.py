"""The current connection for calls."""

from __future__ import annotations

import asyncio

from ability_search.errors import SearchError
from kadi_client import Connection, NotConnected


class Unavailable(SearchError):
    """No broker or no worker answers."""

    code = "unavailable"
    retryable = True
    default_hint = "Run `ability-search doctor` to see what is connected, then call again."


class Line:
    """A replaceable connection to the network.

    Args:
        patience: Seconds to wait until it is connected.
    """

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._there = asyncio.Event()
        self._connection: Connection | None = None

    def use(self, connection: Connection | None) -> None:
        """Replace the connection; ``None`` makes calls wait for the next one."""
        self._connection = connection
        if connection is None:
            self._there.clear()
        else:
            self._there.set()

    async def connection(self) -> Connection:
        """Wait until there is a connection with a session, and return it.

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
