"""A TCP proxy that cuts, slows and holds the connections through it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

Upstream = Callable[[], Awaitable[tuple[str, int]]]
"""Returns the address to connect to; it may change."""

_BLOCK = 16 * 1024


class Proxy:
    """A proxy on a free port of the loopback interface; use it as an asynchronous context.

    Attributes:
        delay: Seconds that each block of up to 16 KiB waits, in both directions.
        connections: Number of connections accepted so far.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.delay = 0.0
        self.connections = 0
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._pairs: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> int:
        """Abort all connections, also in the middle of a message; return their number."""
        pairs = list(self._pairs)
        for pair in pairs:
            pair.cancel()
        return len(pairs)

    def hold(self) -> None:
        """Keep back everything that arrives, until :meth:`release`."""
        self._flowing.clear()

    def release(self) -> None:
        """End :meth:`hold` and the delay."""
        self.delay = 0.0
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        writers = [writer]
        try:
            host, port = await self._upstream()
            onward, backward = await asyncio.open_connection(host, port)
            writers.append(backward)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, backward))
                group.create_task(self._copy(onward, writer))
        except (OSError, asyncio.CancelledError):
            # Not raised again: the server would log a cancelled handler as an error.
            for each in writers:
                each.transport.abort()
        finally:
            self._pairs.discard(task)
            for each in writers:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(_BLOCK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flowing.wait()
                writer.write(block)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.write_eof()
