"""Serving an ASGI application in the running event loop.

Requires starlette and uvicorn, which the client itself does not.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp

from kadi_client.addresses import is_loopback

T = TypeVar("T")

_GRACE = 5
"""Seconds for requests in progress to finish on shutdown."""


class CannotServe(Exception):
    """The address cannot be bound, or binding it is not allowed."""


@asynccontextmanager
async def serve_app(app: ASGIApp, host: str, port: int, *, token: str | None) -> AsyncIterator[str]:
    """Serve ``app`` until the context ends and yield its base URL; port 0 picks a free port.

    The application must check the ``token`` of each request itself.

    Raises:
        CannotServe: if the address cannot be bound, or is not loopback and has no ``token``.
    """
    if not token and not is_loopback(host):
        raise CannotServe(
            f"{host!r} is reachable from other machines: set a token or bind to 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror
        raise CannotServe(f"cannot listen on {host}:{port}: {reason}") from exc
    bound = listener.getsockname()[1]
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    started = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            raise CannotServe(f"the server on {host}:{bound} ended at once")
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


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of ``work``; disconnecting cancels it. The request body must be read.

    Raises:
        ClientDisconnect: if the client disconnected.
    """
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
