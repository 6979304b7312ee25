"""WebSockets that deliver each message on arrival, without waking a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import broadcast
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Request, Response

WRITE_BUFFER = 64 * 1024
"""Size of the write buffer in bytes from which the peer counts as slow."""


class MessageSocket(Connection):
    """An end of a connection that delivers messages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrived: list[bytes] = []
        self._take: Callable[[bytes], None] = self._arrived.append
        self._begun = bytearray()

    async def deliver(self, take: Callable[[bytes], None]) -> NoReturn:
        """Pass every message to ``take``, which must neither wait nor raise.

        Raises:
            ConnectionClosed: when the connection ends, whichever side ended it.
        """
        for message in self._arrived:
            take(message)
        self._arrived.clear()
        self._take = take
        try:
            while True:
                await self.recv()  # never returns a message; raises when the connection ends
        finally:
            self._take = _ignore

    def process_event(self, event: Request | Response | Frame) -> None:
        """Process a fragment of a message; leave everything else to the base class."""
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
        elif event.fin and not self._begun:
            self._take(bytes(event.data))
        else:
            self._begun += event.data
            if event.fin:
                message = bytes(self._begun)
                self._begun.clear()
                self._take(message)

    def send_at_once(self, next_frame: Callable[[], bytes | None]) -> None:
        """Send text messages until there are none left or the peer is slow; never waits.

        If the connection is closing, they are dropped.
        """
        while self.transport.get_write_buffer_size() < WRITE_BUFFER:
            frame = next_frame()
            if frame is None:
                return
            broadcast((self,), frame, text=True)

    async def send_all(self, next_frame: Callable[[], bytes | None]) -> None:
        """Send text messages until there are none left, at the pace of the peer.

        Raises:
            ConnectionClosed: if the connection has ended.
        """
        while (frame := next_frame()) is not None:
            await self.send(frame, text=True)


def _ignore(_message: bytes) -> None:
    """Drop a message that arrives after :meth:`MessageSocket.deliver` has ended."""


class ClientSocket(MessageSocket, ClientConnection):
    """The client end of a connection."""
