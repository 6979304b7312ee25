"""WebSockets that hand on each message as it arrives, without a task to be woken for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, broadcast
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Request, Response

WRITE_BUFFER = 64 * 1024
"""Bytes handed to a socket that it has not taken yet, above which its peer counts as slow."""


class _Socket(Connection):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrived: list[bytes] = []
        self._take: Callable[[bytes], None] = self._arrived.append
        self._begun = bytearray()

    async def deliver(self, take: Callable[[bytes], None]) -> NoReturn:
        """Hand every message to ``take``, which must neither wait nor raise.

        Raises:
            ConnectionClosed: when the connection ends, whoever ended it.
        """
        for message in self._arrived:
            take(message)
        self._arrived.clear()
        self._take = take
        try:
            while True:
                await self.recv()  # which gets to know of the end only
        finally:
            self._take = _ignore

    def process_event(self, event: Request | Response | Frame) -> None:
        """Take in a part of a message; anything else is for the base class."""
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
        """Send text messages until there is none, or the peer is slow.

        On a connection that ends they are dropped.
        """
        while self.transport.get_write_buffer_size() < WRITE_BUFFER:
            frame = next_frame()
            if frame is None:
                return
            broadcast((self,), frame, text=True)

    async def send_all(self, next_frame: Callable[[], bytes | None]) -> None:
        """Send text messages until there is none, at the pace of the peer.

        Raises:
            ConnectionClosed: if the connection has ended.
        """
        while (frame := next_frame()) is not None:
            await self.send(frame, text=True)


def _ignore(_message: bytes) -> None:
    """Nobody is there to take it any more."""


class ClientSocket(_Socket, ClientConnection):
    """Our end of a connection to a server."""


class ServerSocket(_Socket, ServerConnection):
    """Our end of a connection from a client."""
