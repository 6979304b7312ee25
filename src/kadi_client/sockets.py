"""WebSockets that deliver each message on arrival, without waking a task."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.frames import DATA_OPCODES, Frame, apply_mask  # type: ignore[attr-defined]
from websockets.http11 import Request, Response
from websockets.protocol import OPEN, SERVER
from websockets.streams import StreamReader

WRITE_BUFFER = 64 * 1024
"""Size of the write buffer in bytes from which the peer counts as slow."""
_SLICE = 2 * 1024
"""Bytes that the base class processes in one piece: at most 340 frames."""
_TEXT, _BINARY = 0x81, 0x82
"""First byte of the only frame of a message (RFC 6455, 5.2)."""
_MASKED = 0x80
_LENGTHS = {126: 2, 127: 8}
"""Number of bytes of the length, by the number that stands in its place in the second byte."""


class MessageSocket(Connection):
    """An end of a connection that delivers messages.

    It reads and writes the messages of one frame itself, at a fraction of the price of the base
    class, which processes everything else.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrived: list[bytes] = []
        self._take: Callable[[bytes], None] = self._arrived.append
        self._begun = bytearray()
        self._unread = bytearray()
        self._more = False
        """Whether the first frame of the unread data may have arrived completely."""
        self._between = False
        """Whether the base class has processed all frames that it has begun."""
        self._expected = _MASKED if self.protocol.side is SERVER else 0
        """The mask bit of the frames that arrive; those that are sent have the other one."""

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

    def data_received(self, data: bytes) -> None:
        """Process data."""
        self._unread += data
        self._more = True
        self.go_on()

    def go_on(self) -> None:
        """Process the unread data."""
        while self._more:
            self.take_frame()

    def take_frame(self) -> None:
        """Process the first frame of the unread data, if it has arrived completely."""
        data, protocol, end, self._more = self._unread, self.protocol, _SLICE, False
        if protocol.reader.eof:
            return
        if self._between and protocol.state is OPEN:
            if len(data) < 2:
                return
            short = data[1] ^ self._expected
            mask = 2 + _LENGTHS.get(short, 0)
            if len(data) < mask:
                return
            size = int.from_bytes(data[2:mask]) if mask > 2 else short
            most = (protocol.max_message_size or 0) - (protocol.current_size or 0)
            if size <= most and short < _MASKED:  # else the base class refuses it
                begin = mask + self._expected // 32
                end = begin + size
                if len(data) < end:
                    return
                if data[0] in (_TEXT, _BINARY) and protocol.current_size is None:
                    with memoryview(data)[begin:end] as view:
                        masked = self._expected
                        message = apply_mask(view, data[mask:begin]) if masked else bytes(view)
                    del data[:end]
                    self._more = bool(data)
                    self._take(message)
                    return
        piece = bytes(data[:end])
        del data[:end]
        self._more = bool(data)
        super().data_received(piece)
        step: Any = protocol.parser
        while step.gi_yieldfrom is not None:
            step = step.gi_yieldfrom
        self._between = step.gi_code is StreamReader.at_eof.__code__

    def process_event(self, event: Request | Response | Frame) -> None:
        """Process a part of a message; leave everything else to the base class."""
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
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
            if self.protocol.state is OPEN:
                self.transport.write(self._framed(frame))

    def _framed(self, message: bytes) -> bytes:
        """Return a text message as one frame."""
        size = len(message)
        short = size if size < 126 else 126 if size < 1 << 16 else 127
        length = size.to_bytes(_LENGTHS[short]) if size > 125 else b""
        head = bytes((_TEXT, self._expected ^ _MASKED | short)) + length
        if self._expected:
            return head + message
        mask = secrets.token_bytes(4)
        return head + mask + apply_mask(message, mask)

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
