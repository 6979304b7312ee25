"""Connecting to the broker and reconnecting after a lost session."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from kadi_client.addresses import is_loopback, split_addresses, without_credentials
from kadi_client.backoff import Backoff
from kadi_client.errors import AuthenticationError, KadiError, NotConnected
from kadi_client.options import Options
from kadi_client.provider import Provider
from kadi_client.session import Received, Session
from kadi_client.sockets import WRITE_BUFFER, ClientSocket
from kadi_client.tools import Tool

logger = logging.getLogger(__name__)

REMOTE_BACKOFF = 30.0
LOCAL_BACKOFF = 2.0
"""Longest pauses between attempts to reconnect: a broker on this machine is spared nothing."""
CLOSE_SECONDS = 5.0
"""Timeout for the goodbye, and then for the closing handshake."""
_NOT_OPEN = "the connection is not open: use it inside 'async with'"


class Reconnecting(ABC):
    """One session at a time with a broker; a lost session is replaced.

    ``url`` may name several brokers of one network, separated by commas. After a failure the next
    one is tried. ``new_session`` returns a session over a new connection. The calls that
    ``provider`` runs for a session are cancelled when it is lost. Subclasses act on what happens;
    their methods must not raise.
    """

    def __init__(
        self,
        url: str,
        new_session: Callable[[ClientSocket], Session],
        provider: Provider,
        options: Options,
    ) -> None:
        self._urls = split_addresses(url) or [url]
        self._new_session = new_session
        self._provider = provider
        self._registered: tuple[Tool, ...] = ()
        """Tools that the broker was last told of."""
        self._tried = 0
        """Number of attempts, which take turns among the brokers."""
        self._options = options
        self._connect_timeout = options.connect_timeout
        local = set(map(_is_local, self._urls)) == {True}
        longest = LOCAL_BACKOFF if local else REMOTE_BACKOFF
        self._backoff = Backoff(cap=longest if options.max_backoff is None else options.max_backoff)
        self._supervisor: asyncio.Task[None] | None = None
        self._ready_at: float | None = None
        self._closing = False
        self._decided = asyncio.Event()  # set if a session is up, or there will be no more
        self._session: Session | None = None
        self._closed = asyncio.Event()
        self._failure: Exception | None = None
        """The error with which the last opening failed, or that ended the connection for good."""
        self._last_failure: KadiError | None = None
        self.sessions = 0
        """Number of sessions so far; the visible tools may differ between sessions."""

    @abstractmethod
    def _ready(self, session: Session) -> None:
        """Handle a new session."""

    @abstractmethod
    def _received(self, received: Received, session: Session) -> None:
        """Handle what the broker sends besides answers."""

    @abstractmethod
    def _ended(self) -> None:
        """Handle the end: there will be no more sessions."""

    @property
    def connected(self) -> bool:
        """True if there is a session at this moment."""
        return self._session is not None

    @property
    def last_failure(self) -> KadiError | None:
        """Why there is no session at this moment; ``None`` if there is one, or was no attempt."""
        return None if self.connected else self._last_failure

    async def wait_connected(self) -> None:
        """Wait for a session; raises :class:`NotConnected` once the connection is closed."""
        await self._next_session()

    async def open(self, *, connect_timeout: float | None = None) -> None:
        """Connect and register; entering ``async with`` does the same.

        After an error it may be called again, with another ``connect_timeout``.

        Raises:
            NotConnected: if the broker cannot be reached.
            AuthenticationError: if it refuses the identity.
            RemoteError, ProtocolError: if the handshake fails otherwise.
        """
        if self._supervisor is not None or self._closing:
            raise RuntimeError("a connection can be opened only once: create a new one")
        if connect_timeout is not None:
            self._connect_timeout = connect_timeout
        self._failure = None
        self._decided.clear()
        self._supervisor = asyncio.create_task(self._supervise())
        try:
            await self._decided.wait()
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._closing:
            raise NotConnected("the connection was closed while opening")
        if self._failure is not None and not self.sessions:
            raise self._failure

    async def close(self) -> None:
        """Close in order; leaving ``async with`` does the same. Closing twice is allowed."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        self._decided.set()
        try:
            if self._supervisor is not None:
                await self._provider.drain(self._options.grace)
            if self._session is not None:
                await self._session.goodbye(CLOSE_SECONDS)
        finally:
            try:
                if self._supervisor is not None:
                    self._supervisor.cancel()
                    await asyncio.wait({self._supervisor})
            finally:
                self._finish()

    async def serve_forever(self) -> None:
        """Wait until another task closes the connection; cancel it to stop waiting.

        Raises the error if the connection cannot be opened or fails permanently, and
        :class:`NotConnected` if nobody has opened it.
        """
        while not self._closed.is_set():
            if self._supervisor is None:
                raise self._failure or NotConnected(_NOT_OPEN)
            await asyncio.wait({self._supervisor})
        if self._failure is not None:
            raise self._failure

    async def _next_session(self, deadline: float | None = None) -> Session:
        """Return the current session, or wait for the next one.

        Raises:
            NotConnected: if there will be none.
            TimeoutError: if there is none by the deadline, a time of the loop's clock.
        """
        while self._session is None:
            if self._supervisor is None:
                raise NotConnected(_NOT_OPEN)
            if self._closing or self._closed.is_set():
                raise NotConnected("the connection is closed")
            async with asyncio.timeout_at(deadline):
                await self._decided.wait()
        return self._session

    async def _supervise(self) -> None:
        try:
            await self._keep_connected()
        except Exception as exc:
            self._failure = exc
            if self.sessions:
                logger.exception("the connection to %s failed permanently", self._address)
        finally:
            if self.sessions or self._closing:
                self._finish()
            else:
                self._supervisor = None  # it may be opened again
            self._decided.set()

    def _finish(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._decided.set()
            self._ended()

    async def _keep_connected(self) -> None:
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._connect_timeout
        while True:
            self._ready_at = None
            try:
                await self._attempt()
            except (KadiError, OSError, WebSocketException) as exc:
                failure = self._last_failure = self._explain(exc)
            if self._closing:
                return
            established = self.sessions > 0
            if not established and isinstance(failure, AuthenticationError):
                raise failure
            self._tried += 1
            if not established and self._tried < len(self._urls):
                continue
            if not established and clock() >= give_up:
                raise failure
            delay = self._backoff.delay(clock() - self._ready_at if self._ready_at else 0.0)
            if not established:
                delay = min(delay, max(0.0, give_up - clock()))
            logger.warning("%s; reconnecting in %.2f s", failure, delay)
            await asyncio.sleep(delay)

    @property
    def _url(self) -> str:
        """The address of the current broker."""
        return self._urls[self._tried % len(self._urls)]

    @property
    def _address(self) -> str:
        return without_credentials(self._url)

    async def _attempt(self) -> None:
        """Run one session, from connecting until it is lost; always raises."""
        async with asyncio.timeout(self._options.open_timeout) as opening:
            socket = await connect(
                self._url,
                create_connection=ClientSocket,
                compression=None,
                max_size=self._options.max_message_bytes,
                open_timeout=None,
                ping_interval=None,  # the session has its own liveness
                close_timeout=CLOSE_SECONDS,
                write_limit=WRITE_BUFFER,
                proxy=None if _is_local(self._url) else True,
            )
            session = self._new_session(cast(ClientSocket, socket))
            self._registered = self._provider.tools

            def take_up() -> None:
                opening.reschedule(None)
                self._session = session
                self.sessions += 1
                self._ready_at = asyncio.get_running_loop().time()
                self._decided.set()
                logger.info("connected to %s as %s", self._address, session.agent_id)
                self._ready(session)

            try:
                await session.run(
                    self._registered,
                    on_ready=take_up,
                    on_received=lambda received: self._received(received, session),
                    on_lost=lambda: self._give_up(session),
                )
            except BaseException:
                if not session.ready:
                    socket.transport.abort()  # no closing handshake with a silent broker
                raise
            finally:
                await socket.close()

    def _give_up(self, session: Session) -> None:
        if self._session is not session:
            return
        self._session = None
        if not self._closing:
            self._decided.clear()
        self._provider.cancel_all(session)

    def _explain(self, exc: Exception) -> KadiError:
        if isinstance(exc, KadiError):
            return exc
        if isinstance(exc, TimeoutError):
            limit = self._options.open_timeout
            text = f"the broker at {self._address} did not answer within {limit:g} s"
        else:
            text = f"cannot reach the broker at {self._address}: {exc}"
        failure = NotConnected(text)
        failure.__cause__ = exc
        return failure


def _is_local(url: str) -> bool:
    """Return whether a broker's address is one of this machine.

    Raises:
        ValueError: if it is not the address of a broker.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as exc:
        raise ValueError(f"url: {exc}") from exc
    if parts.scheme not in ("ws", "wss") or not host:
        raise ValueError("url: give an address such as ws://localhost:8080/kadi")
    return is_loopback(host)
