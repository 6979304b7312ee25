"""One session over one WebSocket, from the handshake until the connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed

from kadi_client.errors import SERVER_ERROR, FrameTooLarge, KadiError, NotConnected
from kadi_client.messages import Raw
from kadi_client.session import Session
from kadi_client.session_events import Answered, Failed, Ready, Refused, SessionEvent
from kadi_client.sockets import ClientSocket

logger = logging.getLogger(__name__)


class Link:
    """A link that moves frames between a session and its socket and wakes waiting requests.

    Frames leave in the order the session queued them: no task switch happens between taking a
    frame from the queue and writing it.
    """

    def __init__(
        self, socket: ClientSocket, session: Session, on_lost: Callable[[Link], None]
    ) -> None:
        self.session = session
        self._socket = socket
        self._on_lost = on_lost
        self._waiters: dict[int, asyncio.Future[Raw]] = {}
        self._output = asyncio.Event()
        self._ready = asyncio.Event()
        self._refused: KadiError | None = None
        self._lost: str | None = None

    async def run(self, handle: Callable[[SessionEvent], None]) -> None:
        """Do the handshake and read until the connection ends, then wake all waiting requests.

        ``handle`` gets every event except answers and the refusal. It must not raise.

        Raises:
            NotConnected: when the connection ends, whichever side ended it.
            KadiError: if the handshake fails.
        """
        tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._beat())]
        try:
            self.session.start()
            self.flush()
            await self._read(handle)
        except ConnectionClosed as exc:
            if self._refused is not None:
                raise self._refused from None
            self.lose(f"the connection to the broker was lost: {exc}")
            raise NotConnected(self._lost) from exc
        finally:
            self.lose("the connection to the broker was closed")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def lose(self, reason: str) -> None:
        """Mark the session as lost: all waiting requests fail with :class:`NotConnected`."""
        if self._lost is not None:
            return
        self._lost = reason
        self._on_lost(self)
        for waiter in self._waiters.values():
            _fail(waiter, NotConnected(reason))

    async def answer_to(self, key: int, deadline: float) -> Raw:
        """Send what is queued and wait for the answer to the request numbered ``key``.

        Cancellation and the deadline (a time of the loop's clock) abandon the request.

        Raises:
            NotConnected: if the session is lost first.
            RemoteError: if the answer is an error.
            TimeoutError: if there is no answer before the deadline.
        """
        if self._lost is not None:
            raise NotConnected(self._lost)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Raw] = loop.create_future()
        self._waiters[key] = waiter
        self.flush()
        timer = loop.call_at(deadline, _fail, waiter, TimeoutError())
        try:
            return await waiter
        finally:
            timer.cancel()
            if self._waiters.pop(key, None) is not None:
                self.session.abandon(key)
                self.flush()

    def flush(self) -> None:
        """Send what the session has queued, without waiting; what the broker cannot take follows.

        If the connection is closing, it is dropped.
        """
        self._socket.send_at_once(self.session.next_to_send)
        if self.session.has_output:
            self._output.set()

    async def drain(self) -> None:
        """Send what the session has queued; wait while the broker is slow to read."""
        self.flush()
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send_all(self.session.next_to_send)

    # The Caller interface of serving.py

    async def respond(self, id_: Raw, result: Any) -> None:
        """Send the result of an invocation; do nothing if the session is lost."""
        self.session.respond(id_, result)
        await self.drain()

    def fail(self, id_: Raw, message: str, *, code: int = SERVER_ERROR) -> None:
        """Send the error of an invocation, without waiting."""
        self.session.fail(id_, message, code=code)
        self.flush()

    def confirm(self, id_: Raw, result: Any) -> None:
        """Send a short result of an invocation, without waiting."""
        self.session.respond(id_, result)
        self.flush()

    async def publish(self, channel: str, data: Any) -> None:
        """Publish an event without waiting for the confirmation; never raises."""
        try:
            for key in self.session.publish(channel, data, None):
                self.session.abandon(key)
            await self.drain()
        except (FrameTooLarge, TypeError, ValueError, OverflowError, RecursionError) as exc:
            logger.warning("event on %s not published: %s", channel, type(exc).__name__)

    async def goodbye(self, timeout: float) -> None:
        """Announce an orderly close; wait at most ``timeout`` seconds to send it."""
        self.session.goodbye()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.drain()

    async def _read(self, handle: Callable[[SessionEvent], None]) -> None:
        clock = asyncio.get_running_loop().time

        def take(message: bytes) -> None:
            event = self.session.receive(message, clock())
            if event is not None:
                self._act(event, handle)
            self.flush()

        await self._socket.deliver(take)

    def _act(self, event: SessionEvent, handle: Callable[[SessionEvent], None]) -> None:
        match event:
            case Answered(key, result):
                waiter = self._waiters.pop(key, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(result)
            case Failed(key, error):
                waiter = self._waiters.pop(key, None)
                if waiter is not None:
                    _fail(waiter, error)
            case Refused(reason):
                self._refused = reason
                self._socket.transport.abort()
            case Ready():
                self._ready.set()
                handle(event)
            case _:
                handle(event)

    async def _write(self) -> None:
        """Send frames that :meth:`flush` left in the queue."""
        while True:
            await self._output.wait()
            self._output.clear()
            await self.drain()

    async def _beat(self) -> None:
        clock = asyncio.get_running_loop().time
        await self._ready.wait()
        while self.session.tick(clock()):
            self.flush()
            await asyncio.sleep(max(0.0, self.session.next_beat - clock()))
        self.lose("the broker has stopped responding")
        self._socket.transport.abort()


def _fail(waiter: asyncio.Future[Raw], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # marks it as retrieved: the waiting task may be ending already
