"""Connecting to the broker and reconnecting after a lost session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, cast
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from kadi_client.addresses import is_loopback, split_addresses
from kadi_client.backoff import Backoff
from kadi_client.errors import AuthenticationError, KadiError, NotConnected
from kadi_client.session import Received, Session
from kadi_client.sockets import WRITE_BUFFER, ClientSocket
from kadi_client.tools import Tool

logger = logging.getLogger(__name__)

REMOTE_BACKOFF = 30.0
LOCAL_BACKOFF = 2.0
"""Longest pauses between attempts to reconnect: a broker on this machine is spared nothing."""
CLOSE_SECONDS = 5.0
"""Timeout for the goodbye, and then for the closing handshake."""


class Observer(Protocol):
    """The owner of the sessions. But for ``new_session``, the methods must not raise."""

    def new_session(self, socket: ClientSocket) -> tuple[Session, Sequence[Tool]]:
        """Return a session over a new connection, and the tools to register."""

    def ready(self, session: Session) -> None:
        """Handle a new session."""

    def received(self, received: Received, session: Session) -> None:
        """Handle what the broker sends besides answers."""

    def lost(self, session: Session) -> None:
        """Handle the loss of a session; a new session or :meth:`closed` follows."""

    def closed(self) -> None:
        """Handle the end: there will be no more sessions."""


class Uplink:
    """One session at a time with a broker; a lost session is replaced.

    ``url`` may name several brokers of one network, separated by commas. After a failure the next
    one is tried.
    """

    def __init__(
        self,
        url: str,
        observer: Observer,
        *,
        max_message_bytes: int,
        open_timeout: float,
        connect_timeout: float,
        max_backoff: float | None,
    ) -> None:
        self._brokers = [(each, *_parse(each)) for each in split_addresses(url) or [url]]
        self._tried = 0
        """Number of attempts, which take turns among the brokers."""
        self._observer = observer
        self._max_message_bytes = max_message_bytes
        self._open_timeout = open_timeout
        self._connect_timeout = connect_timeout
        if max_backoff is None:
            local = all(is_loopback(host) for _, host, _ in self._brokers)
            max_backoff = LOCAL_BACKOFF if local else REMOTE_BACKOFF
        self._backoff = Backoff(cap=max_backoff)
        self._supervisor: asyncio.Task[None] | None = None
        self._established = False
        self._ready_at: float | None = None
        self._closing = False
        self._decided = asyncio.Event()  # set if a session is up, or there will be no more
        self.session: Session | None = None
        """The current session; ``None`` if there is none."""
        self.sessions = 0
        """Number of sessions so far."""
        self.closed = asyncio.Event()
        self.failure: Exception | None = None
        """The error that ended the connection for good."""

    async def open(self) -> None:
        """Connect and wait for the first session; raise the error if there will be none."""
        if self._supervisor is not None:
            raise RuntimeError("a connection can be opened only once: create a new one")
        self._supervisor = asyncio.create_task(self._supervise())
        await self._decided.wait()
        if not self._established:
            raise self.failure or NotConnected("the connection was closed while opening")

    @property
    def _broker(self) -> tuple[str, str, str]:
        """The URL, the host and the address for display of the current broker."""
        return self._brokers[self._tried % len(self._brokers)]

    @property
    def _address(self) -> str:
        return self._broker[2]

    async def next_session(self) -> Session:
        """Return the current session, or wait for the next one.

        Raises:
            NotConnected: if there will be none.
        """
        if self._supervisor is None:
            raise NotConnected("the connection is not open: use it inside 'async with'")
        while self.session is None:
            if self._closing or self.closed.is_set():
                raise NotConnected("the connection is closed")
            await self._decided.wait()
        return self.session

    @property
    def opened(self) -> bool:
        """True if :meth:`open` was called."""
        return self._supervisor is not None

    def begin_close(self) -> bool:
        """Stop creating sessions; return False if closing has begun already."""
        if self._closing:
            return False
        self._closing = True
        self._decided.set()
        return True

    async def end(self) -> None:
        """Say goodbye and close the current session."""
        try:
            if self.session is not None:
                await self.session.goodbye(CLOSE_SECONDS)
        finally:
            if self._supervisor is not None:
                self._supervisor.cancel()
                try:
                    await asyncio.wait({self._supervisor})
                finally:
                    self._finish()

    async def _supervise(self) -> None:
        try:
            await self._keep_connected()
        except Exception as exc:
            self.failure = exc
            if self._established:
                logger.exception("the connection to %s failed permanently", self._address)
        finally:
            self._finish()

    def _finish(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self._decided.set()
            self._observer.closed()

    async def _keep_connected(self) -> None:
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._connect_timeout
        while True:
            self._ready_at = None
            try:
                await self._attempt()
            except (KadiError, OSError, WebSocketException) as exc:
                failure = self._explain(exc)
            if self._closing:
                return
            if not self._established and isinstance(failure, AuthenticationError):
                raise failure
            self._tried += 1
            if not self._established and self._tried < len(self._brokers):
                continue
            if not self._established and clock() >= give_up:
                raise failure
            delay = self._backoff.delay(clock() - self._ready_at if self._ready_at else 0.0)
            if not self._established:
                delay = min(delay, max(0.0, give_up - clock()))
            logger.warning("%s; reconnecting in %.2f s", failure, delay)
            await asyncio.sleep(delay)

    async def _attempt(self) -> None:
        """Run one session, from connecting until it is lost; always raises."""
        url, host, _ = self._broker
        async with asyncio.timeout(self._open_timeout) as opening:
            socket = await connect(
                url,
                create_connection=ClientSocket,
                compression=None,
                max_size=self._max_message_bytes,
                open_timeout=None,
                ping_interval=None,  # the session has its own liveness
                close_timeout=CLOSE_SECONDS,
                write_limit=WRITE_BUFFER,
                proxy=None if is_loopback(host) else True,
            )
            session, tools = self._observer.new_session(cast(ClientSocket, socket))

            def take_up() -> None:
                opening.reschedule(None)
                self._take_up(session)

            try:
                await session.run(
                    tools,
                    on_ready=take_up,
                    on_received=lambda received: self._observer.received(received, session),
                    on_lost=lambda: self._give_up(session),
                )
            except BaseException:
                if not session.ready:
                    socket.transport.abort()  # no closing handshake with a silent broker
                raise
            finally:
                await socket.close()

    def _take_up(self, session: Session) -> None:
        self.session = session
        self.sessions += 1
        self._established = True
        self._ready_at = asyncio.get_running_loop().time()
        self._decided.set()
        logger.info("connected to %s as %s", self._address, session.agent_id)
        self._observer.ready(session)

    def _give_up(self, session: Session) -> None:
        if self.session is not session:
            return
        self.session = None
        if not self._closing:
            self._decided.clear()
        self._observer.lost(session)

    def _explain(self, exc: Exception) -> KadiError:
        if isinstance(exc, KadiError):
            return exc
        if isinstance(exc, TimeoutError):
            text = f"the broker at {self._address} did not answer within {self._open_timeout:g} s"
        else:
            text = f"cannot reach the broker at {self._address}: {exc}"
        failure = NotConnected(text)
        failure.__cause__ = exc
        return failure


def _parse(url: str) -> tuple[str, str]:
    """Return the host, and the address for display: without user, password and query."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise ValueError(f"url: {exc}") from exc
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ValueError("url: give an address such as ws://localhost:8080/kadi")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = f"{host}:{port}" if port else host
    return parts.hostname, f"{parts.scheme}://{where}{parts.path}"
