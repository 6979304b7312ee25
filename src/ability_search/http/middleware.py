"""The middleware of the gateway: access control, limits, request ids and traces."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ability_search.config.schema import Gateway
from ability_search.edges.tool_calls import report_of
from ability_search.errors import Busy, SearchError
from ability_search.http.console import is_console
from ability_search.http.problems import GATEWAY, RateLimited, problem
from ability_search.ops.http_access import BrowserPolicy, check_bearer
from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import (
    GATEWAY_IN_FLIGHT,
    GATEWAY_RATE_LIMITED,
    GATEWAY_RESPONSES,
    GATEWAY_STREAMS,
)
from kadi_client.context import REQUEST_ID, from_headers, handling
from kadi_client.tracing import fail, span

_ADDRESSES = 4096
"""Maximum number of buckets; the least recently used is dropped, and later starts full."""
_LONGEST_PATH = 256
_FAILED = 500


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
        open_paths: Paths that need no token; those of the console need none either.
        meter: Records responses, refusals and concurrency.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Gateway,
        *,
        host: str,
        open_paths: Collection[str],
        meter: Meter,
    ) -> None:
        self._app = app
        self._open = open_paths
        self._meter = meter
        self._rate = RateLimit(settings.rate, settings.burst)
        self._policy = BrowserPolicy(host, hosts=settings.hosts, origins=settings.origins)
        token = settings.token
        self._token = token.get_secret_value().encode() if token else None
        self._requests = Places(settings.concurrency, "requests in progress")
        self._streams = Places(settings.streams, "event streams open")
        meter.watch(GATEWAY_IN_FLIGHT, lambda: {(): self._requests.taken})
        meter.watch(GATEWAY_STREAMS, lambda: {(): self._streams.taken})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with a problem document."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meter.add(GATEWAY_RESPONSES, 1, str(message["status"]))
            await send(message)

        try:
            self._check(scope)
            with self._streams if _is_stream(scope) else self._requests:
                await self._app(scope, receive, counted)
        except SearchError as exc:
            await problem(report_of(exc, GATEWAY))(scope, receive, counted)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        is_public = scope["path"] in self._open or is_console(scope["path"])
        self._policy.check(headers, is_page=is_public)
        client = scope.get("client")
        wait = self._rate.wait(client[0] if client else "", time.monotonic())
        if wait:
            self._meter.add(GATEWAY_RATE_LIMITED, 1)
            raise RateLimited("too many requests from this address", retry_after=wait)
        if self._token is not None and not is_public:
            check_bearer(headers, self._token)


def _is_stream(scope: Scope) -> bool:
    """Return whether the response is a stream of unlimited duration."""
    return scope["method"] in ("GET", "HEAD") and scope["path"] in ("/events", "/mcp")


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    """Time of the last update, on the caller's clock."""


class RateLimit:
    """Admits ``rate`` requests per second and address on average, and ``burst`` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Count a request at ``now``; return 0 to admit it, else the seconds to wait."""
        bucket = self._buckets.pop(address, None) or _Bucket(self._burst, now)
        self._buckets[address] = bucket
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        elapsed = max(0.0, now - bucket.filled)
        bucket.tokens = min(self._burst, bucket.tokens + elapsed * self._rate)
        bucket.filled = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._rate
        bucket.tokens -= 1
        return 0.0


class RequestContext:
    """Middleware that takes the request id from its header, or creates one.

    It records a span for requests that call tools, but not for probes, streams and the console.

    Args:
        app: The wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with handling(from_headers(Headers(scope=scope))) as context:
            status = 0

            async def named(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    MutableHeaders(scope=message)[REQUEST_ID] = context.call
                await send(message)

            if not _calls_tools(scope):
                await self._app(scope, receive, named)
                return
            method, path = scope["method"], scope["path"][:_LONGEST_PATH]
            notes = {"http.request.method": method, "url.path": path}
            with span(method, SpanKind.SERVER, notes, parent=context.traceparent) as answered:
                await self._app(scope, receive, named)
                answered.set_attribute("http.response.status_code", status)
                if status >= _FAILED:
                    fail(answered, str(status))


def _calls_tools(scope: Scope) -> bool:
    method, path = scope["method"], str(scope["path"])
    return method == "POST" or (method == "GET" and path.startswith("/collections"))
