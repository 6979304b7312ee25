"""The HTTP server of every component: it serves an ASGI application in the running event loop.

Connections on which a client is slow end in bounded time: while headers arrive, between requests,
and while the client does not read its response. Bodies are limited by the applications.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ability_search.errors import ConfigurationError
from ability_search.extensions.cli.http_access import App
from kadi_client.addresses import is_loopback

CONNECTIONS = 512
"""Maximum number of open connections; a new one displaces the oldest without a whole request."""
HEADER_SECONDS = 10.0
"""Time for all headers of a request to arrive."""
UNREAD_SECONDS = 30.0
"""Time for which a client may read nothing of its response."""

_GRACE = 5
"""Seconds for requests in progress to finish on shutdown."""


@asynccontextmanager
async def serve_http(
    app: App, host: str, port: int, *, token: str | None, prefix: str
) -> AsyncIterator[str]:
    """Serve ``app`` until the context ends and yield its base URL.

    Args:
        app: The application; it must check the ``token`` of each request itself.
        host: Address to listen on.
        port: TCP port; 0 picks a free one.
        token: The bearer token that clients must send, if any.
        prefix: Prefix of the settings for host, port and token, such as ``gateway``.

    Raises:
        ConfigurationError: if the address cannot be bound, or is not loopback and has no ``token``.
    """
    settings = f"SEARCH_{prefix.upper()}"
    if not token and not is_loopback(host):
        raise ConfigurationError(
            f"{host!r} is reachable from other machines: set a token or bind to 127.0.0.1",
            hint=f"Set {settings}_TOKEN, see `ability-search secret --help`, or"
            f" {settings}_HOST=127.0.0.1.",
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {reason}",
            hint=f"Choose another port with {settings}_PORT or its option, 0 for a free one.",
        ) from exc
    bound = listener.getsockname()[1]
    server = _Server(
        uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    started = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            raise ConfigurationError(f"the server on {host}:{bound} stopped immediately")
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        started.cancel()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The composition root handles the signals of the process.
        yield


class _Connection(H11Protocol):
    """A connection with the time limits that uvicorn lacks."""

    opened = 0.0
    """When it was opened, on the clock of the event loop."""
    _headers: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_waiting(self) -> bool:
        """Return whether the client has not sent a whole request."""
        return self.is_idle or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened = self.loop.time()
        self._limit_headers()
        if len(self.connections) > CONNECTIONS:
            others = (each for each in self.connections if isinstance(each, _Connection))
            waiting = (each for each in others if each.is_waiting and each is not self)
            min(waiting, key=lambda each: each.opened, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._headers, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _limit_headers(self) -> None:
        """Start the time limit of the headers, or end it if they have arrived."""
        if self.is_idle and self._headers is None:
            self._headers = self.loop.call_later(HEADER_SECONDS, self.transport.abort)
        elif not self.is_idle and self._headers is not None:
            self._headers.cancel()
            self._headers = None

    def _limit_unread(self) -> None:
        left = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() >= left:
                self.transport.abort()
            else:
                self._limit_unread()

        self._unread = self.loop.call_later(UNREAD_SECONDS, check)
