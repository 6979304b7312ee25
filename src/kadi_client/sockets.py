"""WebSockets that deliver each message on arrival, without waking a task."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, broadcast
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Request, Response

WRITE_BUFFER = 64 * 1024
"""Size of the write buffer in bytes from which the peer counts as slow."""
_SLICE = 2 * 1024
"""Bytes that are processed in one piece: at most 340 frames."""
_TURN_SECONDS = 0.005
"""Time after which the connections with data to process leave the loop to others, in seconds."""
_ONE_SECONDS = 0.001
"""Time after which a connection leaves it to the next one, in seconds."""


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


class Turns:
    """The connections of a server that have more to deliver than a turn of the loop allows."""

    def __init__(self) -> None:
        self._waiting: deque[ServerSocket] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, socket: ServerSocket) -> None:
        """Let a connection take its turn after those that wait."""
        self._waiting.append(socket)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        """Let connections take their turns, one after the other, for a short time all together."""
        until = time.monotonic() + _TURN_SECONDS
        try:
            while self._waiting and time.monotonic() <= until:
                self._waiting.popleft().take_turn()
        finally:
            self._scheduled = False
            self._schedule()


class ServerSocket(_Socket, ServerConnection):
    """The server end of a connection.

    ``arrived`` is called whenever data has arrived, and ``ended`` when the connection has ended.

    One reading may hold tens of thousands of messages. They are delivered for a short time, and the
    rest in later turns of the loop; nothing is read until then.
    """

    def __init__(self, *args: Any, turns: Turns, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = turns
        self.arrived: Callable[[], None] = _nothing
        self.ended: Callable[[], Any] = _nothing
        self.held = False
        """While true, no further data is processed; then call :meth:`go_on`."""
        self._unread = bytearray()
        self._waits = False

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
        """Process data, and report it."""
        self._unread += data
        self.go_on()

    def eof_received(self) -> None:
        """Process the end of the data."""
        self._unread.clear()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection, and report it."""
        self._unread.clear()
        super().connection_lost(exc)
        self.ended()

    def go_on(self) -> None:
        """Deliver messages for a short time, and leave the rest to later turns of the loop.

        If others wait for theirs, so does a connection with much to deliver.
        """
        if self._waits:
            return
        if self._turns and len(self._unread) > _SLICE:
            self._leave()
        else:
            self.take_turn()

    def take_turn(self) -> None:
        """Deliver messages for the time of one connection."""
        until = time.monotonic() + _ONE_SECONDS
        while self._unread and not self.held and time.monotonic() <= until:
            piece = bytes(self._unread[:_SLICE])
            del self._unread[:_SLICE]
            super().data_received(piece)
        self._leave()

    def _leave(self) -> None:
        """Wait for another turn if there is more to deliver, and else for data."""
        if not self.transport.is_closing():
            if self._unread:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        self._waits = bool(self._unread) and not self.held
        if self._waits:
            self._turns.add(self)
        self.arrived()
