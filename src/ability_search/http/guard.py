"""Access control and limits; applied to each request before its body is read."""

from __future__ import annotations

import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ability_search.config.schema_edges import Gateway
from ability_search.edges.tool_calls import report_of
from ability_search.errors import Busy, SearchError
from ability_search.http.console import is_console
from ability_search.http.gateway_metrics import Metrics
from ability_search.http.problems import GATEWAY, RateLimited, problem
from ability_search.http.rate_limit import RateLimit
from ability_search.ops.http_access import BrowserPolicy, check_bearer
from ability_search.ops.metrics.metric_table import GATEWAY_IN_FLIGHT, GATEWAY_STREAMS

OPEN = frozenset({"/health", "/ready", "/openapi.json"})
"""Paths that need no token; those of the console need none either."""


class Places:
    """A limit on concurrency that refuses instead of waiting; use it as a context.

    Raises:
        Busy: on entering, if all places are taken.
    """

    def __init__(self, size: int, what: str) -> None:
        self._size = size
        self._what = what
        self.taken = 0

    def __enter__(self) -> None:
        if self.taken >= self._size:
            raise Busy(f"there are {self.taken} {self._what}", retry_after=1.0)
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1


class Guard:
    """Middleware that checks host, origin and token, and enforces rate and concurrency limits.

    The token is required if one is set; for host and origin see :class:`BrowserPolicy`.

    Args:
        app: The wrapped application.
        settings: The limits.
        host: Address to listen on.
        metrics: Records responses, refusals and concurrency.
    """

    def __init__(self, app: ASGIApp, settings: Gateway, *, host: str, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._rate = RateLimit(settings.rate, settings.burst)
        self._policy = BrowserPolicy(host, hosts=settings.hosts, origins=settings.origins)
        token = settings.token
        self._token = token.get_secret_value().encode() if token else None
        self._requests = Places(settings.concurrency, "requests in progress")
        self._streams = Places(settings.streams, "event streams open")
        metrics.meter.watch(GATEWAY_IN_FLIGHT, lambda: {(): self._requests.taken})
        metrics.meter.watch(GATEWAY_STREAMS, lambda: {(): self._streams.taken})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with a problem document."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.responded(message["status"])
            await send(message)

        try:
            self._check(scope)
            with self._streams if _is_stream(scope) else self._requests:
                await self._app(scope, receive, counted)
        except SearchError as exc:
            await problem(report_of(exc, GATEWAY))(scope, receive, counted)

    def _check(self, scope: Scope) -> None:
        client = scope.get("client")
        wait = self._rate.wait(client[0] if client else "", time.monotonic())
        if wait:
            self._metrics.rate_limited()
            raise RateLimited("too many requests from this address", retry_after=wait)
        headers = Headers(scope=scope)
        is_public = scope["path"] in OPEN or is_console(scope["path"])
        self._policy.check(headers, is_page=is_public)
        if self._token is not None and not is_public:
            check_bearer(headers, self._token)


def _is_stream(scope: Scope) -> bool:
    """Return whether the response is a stream of unlimited duration."""
    return scope["method"] in ("GET", "HEAD") and scope["path"] in ("/events", "/mcp")
