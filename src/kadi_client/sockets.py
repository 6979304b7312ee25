"""WebSockets that deliver each message on arrival, without waking a task."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, broadcast
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Request, Response

WRITE_BUFFER = 64 * 1024
"""Size of the write buffer in bytes from which the peer counts as slow."""
_SLICE = 4 * 1024
"""Bytes that are processed in one piece: at most 680 frames."""
_TURN_SECONDS = 0.005
"""Time after which a connection leaves the loop to others, in seconds."""


class _Socket(Connection):
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
    """Drop a message that arrives after :meth:`_Socket.deliver` has ended."""


def _nothing() -> None:
    pass


class ClientSocket(_Socket, ClientConnection):
    """The client end of a connection."""


class ServerSocket(_Socket, ServerConnection):
    """The server end of a connection; ``arrived`` is called whenever data has arrived."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.arrived: Callable[[], None] = _nothing
        self._unread = b""

    @property
    def begun(self) -> int:
        """Number of bytes of a message that has arrived in part."""
        return len(self.protocol.reader.buffer) + len(self._begun)

    @property
    def unsent(self) -> int:
        """Number of bytes that wait for the peer to read."""
        return self.transport.get_write_buffer_size()

    @property
    def buffered(self) -> int:
        """Number of bytes in both directions that are buffered."""
        return self.begun + len(self._unread) + self.unsent

    def data_received(self, data: bytes) -> None:
        """Process data, and report it.

        One reading may hold tens of thousands of frames. It is processed in slices, and what takes
        too long is left to a later turn of the loop; nothing is read until then.
        """
        if self._unread:
            self._unread += data
        else:
            self._process_slices(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what is left, and end the connection."""
        self._unread = b""
        super().connection_lost(exc)

    def _process_slices(self, data: bytes) -> None:
        until = time.monotonic() + _TURN_SECONDS
        for start in range(0, len(data), _SLICE):
            super().data_received(data[start : start + _SLICE])
            if time.monotonic() > until:
                self._unread = data[start + _SLICE :]
                break
        self.arrived()
        if self._unread:
            self.transport.pause_reading()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        data, self._unread = self._unread, b""
        if data and not self.transport.is_closing():
            self.transport.resume_reading()
            self._process_slices(data)
