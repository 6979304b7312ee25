"""The connections of a broker."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from kadi_client.sockets import WRITE_BUFFER, MessageSocket
from kadi_localnet.broker.session import Session

_MUCH = 2 * 1024
"""Bytes from which a connection waits for those that wait already."""
_TURN_SECONDS = 0.005
"""Time after which the connections with data to process leave the loop to others, in seconds."""
_ONE_SECONDS = 0.001
"""Time after which a connection leaves it to the next one, in seconds."""


class Turns:
    """The connections of a server that have more to deliver than a turn of the loop allows."""

    def __init__(self) -> None:
        self._waiting: deque[Peer] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, peer: Peer) -> None:
        """Let a connection take its turn after those that wait."""
        self._waiting.append(peer)
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


class Peer(MessageSocket, ServerConnection):
    """A connection with its session, whose outbox it sends.

    ``arrived`` is called whenever data has arrived, and ``ended`` when the connection has ended.

    One reading may hold tens of thousands of messages. They are delivered for a short time, and the
    rest in later turns of the loop; nothing is read until then.
    """

    session: Session
    """Its session, once it is open."""

    def __init__(self, *args: Any, turns: Turns, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = turns
        self.arrived: Callable[[], None] = lambda: None
        self.ended: Callable[[], Any] = lambda: None
        self.held = False
        """While true, no further data is processed; then call :meth:`go_on`."""
        self.waiting: list[bytes] = []
        """Messages that wait until the other brokers have taken theirs."""
        self.cut: asyncio.TimerHandle | None = None
        self._awake = asyncio.Event()
        self._waits = False

    def flush(self) -> None:
        """Send what the socket accepts at once; leave the rest to :meth:`write`.

        Most frames are sent here, without a task switch.
        """
        self.send_at_once(self.session.outbox.pop)
        self.measure()
        if self.session.outbox or self.session.closing is not None:
            self._awake.set()

    async def write(self) -> None:
        """Send the rest at the pace of the peer; close the connection when the session ends."""
        session = self.session
        with suppress(ConnectionClosed):
            while True:
                self._awake.clear()
                await self.send_all(session.outbox.pop)
                if session.closing is not None:
                    await self.close(session.closing.code, session.closing.reason)
                    return
                await self._awake.wait()

    def measure(self) -> None:
        """Note what is buffered in both directions."""
        size = len(self.protocol.reader.buffer) + len(self._begun) + len(self._unread)
        size += self.transport.get_write_buffer_size()
        self.session.buffer(size + sum(map(len, self.waiting)) if self.waiting else size)

    def overflows(self, most: int) -> bool:
        """Return whether more than ``most`` bytes, and what is sent at once, wait to be read."""
        return self.transport.get_write_buffer_size() > most + WRITE_BUFFER

    @property
    def begun(self) -> int:
        """Number of bytes of a message that has arrived in part."""
        read = len(self.protocol.reader.buffer) + len(self._begun)
        return read if self._more else read + len(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection, and report it."""
        super().connection_lost(exc)
        self.ended()

    def go_on(self) -> None:
        """Deliver messages for a short time, and leave the rest to later turns of the loop.

        If others wait for theirs, so does a connection with much to deliver.
        """
        if self._waits:
            return
        if len(self._unread) > _MUCH and self._turns:
            self._leave()
        else:
            self.take_turn()

    def take_turn(self) -> None:
        """Deliver messages for the time of one connection."""
        until = time.monotonic() + _ONE_SECONDS
        while self._more and not self.held and time.monotonic() <= until:
            self.take_frame()
        self._leave()

    def _leave(self) -> None:
        """Wait for another turn if there is more to deliver, and else for data."""
        if not self.transport.is_closing():
            if self._more:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        self._waits = self._more and not self.held
        if self._waits:
            self._turns.add(self)
        self.arrived()
