"""One session over one WebSocket, from the handshake until it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from kadi.errors import SERVER_ERROR, FrameTooLarge, KadiError, NotConnected
from kadi.messages import Raw
from kadi.session import Session
from kadi.session_events import Answered, Failed, Ready, SessionEvent

logger = logging.getLogger(__name__)


class Link:
    """Moves frames between a session and its socket, and wakes whoever waits for an answer.

    Frames leave in the order the session queued them: taking the next one and writing it happen
    without a suspension between, whichever task does it.
    """

    def __init__(
        self, socket: ClientConnection, session: Session, on_lost: Callable[[Link], None]
    ) -> None:
        self.session = session
        self._socket = socket
        self._on_lost = on_lost
        self._waiters: dict[int, asyncio.Future[Raw]] = {}
        self._output = asyncio.Event()
        self._ready = asyncio.Event()
        self._lost: str | None = None

    async def run(self, handle: Callable[[SessionEvent], None]) -> None:
        """Shake hands and read until the connection ends; everybody who waits is woken then.

        ``handle`` gets every event but the answers; what it raises ends the link.

        Raises:
            NotConnected: when the connection ends, whoever ended it.
        """
        tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._beat())]
        try:
            self.session.start()
            self._output.set()
            await self._read(handle)
        except ConnectionClosed as exc:
            self.lose(f"the connection to the broker was lost: {exc}")
            raise NotConnected(self._lost) from exc
        finally:
            self.lose("the connection to the broker was closed")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def lose(self, reason: str) -> None:
        """Take the session for lost: whoever waits for an answer gets :class:`NotConnected`."""
        if self._lost is not None:
            return
        self._lost = reason
        self._on_lost(self)
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(NotConnected(reason))
                waiter.exception()  # marks it as seen: its waiter may be on the way out already

    async def answer_to(self, key: int) -> Raw:
        """Send what is queued and wait for the answer to the request numbered ``key``.

        Cancelling this forgets the request.

        Raises:
            NotConnected: if the session is lost first.
            RemoteError: if the answer is an error.
        """
        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiters[key] = waiter
        try:
            await self.flush()
            return await waiter
        finally:
            del self._waiters[key]
            if not waiter.done() or waiter.cancelled():
                self.session.abandon(key)
                self.flush_soon()

    async def flush(self) -> None:
        """Put on the wire what the session has queued; waits while the broker is slow to read.

        Raises:
            NotConnected: if the session is lost.
        """
        if self._lost is not None:
            raise NotConnected(self._lost)
        try:
            while (frame := self.session.next_to_send()) is not None:
                await self._socket.send(frame, text=True)
        except ConnectionClosed as exc:
            raise NotConnected(f"the connection to the broker was lost: {exc}") from exc
        finally:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Have sent what the session has queued, without waiting."""
        if self.session.has_output:
            self._output.set()

    # What a provider needs of its caller

    async def respond(self, id_: Raw, result: Any) -> None:
        """Send the result of an invocation; does nothing on a lost session."""
        self.session.respond(id_, result)
        with contextlib.suppress(NotConnected):
            await self.flush()

    def fail(self, id_: Raw, message: str, *, code: int = SERVER_ERROR) -> None:
        """Send the error of an invocation, without waiting."""
        self.session.fail(id_, message, code=code)
        self.flush_soon()

    async def publish(self, channel: str, data: Any) -> None:
        """Publish an event without waiting for it to be confirmed; never raises."""
        try:
            self.session.post("kadi.event.publish", {"channel": channel, "data": data})
            await self.flush()
        except NotConnected:
            return
        except (FrameTooLarge, TypeError, ValueError, OverflowError, RecursionError) as exc:
            logger.warning("event on %s not published: %s", channel, type(exc).__name__)

    async def goodbye(self, timeout: float) -> None:
        """Announce the orderly close that is about to follow."""
        self.session.goodbye()
        with contextlib.suppress(KadiError, TimeoutError):
            async with asyncio.timeout(timeout):
                await self.flush()

    async def _read(self, handle: Callable[[SessionEvent], None]) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            event = self.session.receive(await self._socket.recv(decode=False), clock())
            match event:
                case None:
                    pass
                case Answered(key, result):
                    self._settle(key, result, None)
                case Failed(key, error):
                    self._settle(key, None, error)
                case Ready():
                    self._ready.set()
                    handle(event)
                case _:
                    handle(event)
            self.flush_soon()

    def _settle(self, key: int, result: Raw | None, error: KadiError | None) -> None:
        waiter = self._waiters.get(key)
        if waiter is None or waiter.done():
            return
        if error is not None:
            waiter.set_exception(error)
            waiter.exception()
        elif result is not None:
            waiter.set_result(result)

    async def _write(self) -> None:
        """Send what was queued by somebody who cannot wait for the socket."""
        with contextlib.suppress(NotConnected):
            while True:
                await self._output.wait()
                self._output.clear()
                await self.flush()

    async def _beat(self) -> None:
        clock = asyncio.get_running_loop().time
        await self._ready.wait()
        while self.session.tick(clock()):
            self.flush_soon()
            await asyncio.sleep(max(0.0, self.session.next_beat - clock()))
        self.lose("the broker has fallen silent")
        self._socket.transport.abort()
