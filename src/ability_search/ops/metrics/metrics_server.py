"""The numbers of a process over HTTP, for whoever scrapes them."""

from __future__ import annotations

import hmac
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from ability_search.errors import ConfigurationError
from ability_search.ops.metrics.prometheus_meter import CONTENT_TYPE
from kadi_client.addresses import is_loopback

PATH = "/metrics"
_SECONDS = 5.0
"""For a request to arrive, and for one in progress on leaving."""


@asynccontextmanager
async def expose(
    text: Callable[[], bytes], host: str, port: int, *, token: str | None
) -> AsyncIterator[str]:
    """Serve ``GET /metrics`` until the context ends; port 0 takes a free one. Yields its address.

    Args:
        text: What is answered; called in the event loop.
        host: Address to listen on.
        port: TCP port.
        token: Bearer token that callers must show, if any.

    Raises:
        ConfigurationError: if the address cannot be listened on, or is not loopback and has no
            ``token``.
    """
    if not token and not is_loopback(host):
        raise ConfigurationError(
            f"metrics: {host!r} is reachable from other machines",
            hint="Set SEARCH_METRICS_TOKEN, or SEARCH_METRICS_HOST=127.0.0.1.",
        )
    expected = f"Bearer {token}".encode() if token else None

    def answer(connection: ServerConnection, request: Request) -> Response:
        if urlsplit(request.path).path != PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, f"There is only {PATH}.\n")
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        if expected is not None and not hmac.compare_digest(given, expected):
            refused = connection.respond(HTTPStatus.UNAUTHORIZED, "Show the bearer token.\n")
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        response = connection.respond(HTTPStatus.OK, text().decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = CONTENT_TYPE
        return response

    try:
        server = await serve(
            _nobody,
            host,
            port,
            process_request=answer,
            server_header=None,
            open_timeout=_SECONDS,
            close_timeout=_SECONDS,
        )
    except OSError as exc:
        raise ConfigurationError(
            f"metrics: cannot listen on {host}:{port}: {os.strerror(exc.errno or 0)}",
            hint="Choose another port with SEARCH_METRICS_PORT, 0 for a free one.",
        ) from exc
    async with server:
        bound = next(iter(server.sockets)).getsockname()[1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}{PATH}"


async def _nobody(_connection: ServerConnection) -> None:
    """Every request was answered before it became a connection."""
