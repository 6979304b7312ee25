"""The middleware of the gateway: access control, limits, request ids and traces."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ability_search.errors import Busy, DeadlineExceeded, SearchError, TooLarge
from ability_search.extensions.cli.http_access import BrowserPolicy, check_bearer
from ability_search.extensions.cli.tool_calls import report_of
from ability_search.extensions.gateway.problems import (
    CLIENT_CLOSED_REQUEST,
    GATEWAY,
    RateLimited,
    problem,
)
from ability_search.extensions.gateway.settings import Gateway
from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import Components, metrics_in
from kadi_client.context import REQUEST_ID, from_headers, handling
from kadi_client.tracing import fail, span

PAGE = "/"
ASSETS = "/console/"
"""Paths of the console, which shows no data without a token: its page, and a prefix."""
_ADDRESSES = 4096
"""Maximum number of buckets; the least recently used is dropped, and later starts full."""
BODY_SECONDS = 30.0
"""Maximum time for a whole body to arrive."""
YOUNG_SECONDS = 1.0
"""Age below which an arriving body is not displaced."""
_PROBES = ("/health", "/ready")
"""Paths that take no place: they answer also while the gateway is full."""
_STREAMS = ("/events", "/mcp")
"""Paths whose responses to GET are streams of unlimited duration."""
_LONGEST_PATH = 256
_FAILED = 500

_METRICS = Components("gateway")
GATEWAY_CALLS = _METRICS.counter(
    "gateway_tool_calls_total",
    "Completed tool calls, by code: `ok` or an error code.",
    "tool",
    "code",
)
GATEWAY_CALL_SECONDS = _METRICS.histogram(
    "gateway_tool_call_seconds", "Duration of tool calls.", "tool"
)
GATEWAY_RESPONSES = _METRICS.counter("gateway_responses_total", "Responses by status.", "status")
GATEWAY_IN_FLIGHT = _METRICS.gauge("gateway_requests_in_flight", "Requests in progress.")
GATEWAY_STREAMS = _METRICS.gauge("gateway_streams_open", "Open event streams.")
GATEWAY_RATE_LIMITED = _METRICS.counter(
    "gateway_rate_limited_total", "Requests refused by the rate limit of their address."
)
METRICS = metrics_in(globals())


@dataclass(slots=True)
class Places:
    """A limit on concurrency that refuses instead of waiting; use it as a context.

    Raises:
        Busy: on entering, if all places are taken.
    """

    size: int
    what: str
    taken: int = 0

    def __enter__(self) -> None:
        if self.taken >= self.size:
            raise Busy(f"there are {self.taken} {self.what}", retry_after=1.0)
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Reads whole bodies before requests take a place, so that unfinished ones do not hold any.

    If too many bodies are arriving, a new one displaces the slowest of those that have been
    arriving for a second.
    """

    limit: int
    """Maximum size of a body in bytes."""
    size: int
    """Maximum number of bodies that arrive at the same time."""
    _arriving: set[_Arrival] = field(default_factory=set)

    async def read(self, receive: Receive) -> Receive:
        """Read a body; return a function that delivers it in one message, then what follows.

        Raises:
            TooLarge: if it is longer than the limit; the rest is not read.
            DeadlineExceeded: if it does not arrive in time, or is displaced.
            Busy: if too many bodies are arriving and none can be displaced.
            ClientDisconnect: if the client disconnects meanwhile.
        """
        now = asyncio.get_running_loop().time()
        if len(self._arriving) >= self.size:
            old = [each for each in self._arriving if now - each.began >= YOUNG_SECONDS]
            if not old:
                raise Busy(f"{len(self._arriving)} request bodies are arriving", retry_after=1.0)
            slowest = min(old, key=lambda each: len(each.body) / (now - each.began))
            self._arriving.discard(slowest)
            slowest.deadline.reschedule(now)
        try:
            async with asyncio.timeout(BODY_SECONDS) as deadline:
                arrival = _Arrival(now, deadline)
                self._arriving.add(arrival)
                try:
                    await self._receive(receive, arrival.body)
                finally:
                    self._arriving.discard(arrival)
        except TimeoutError as exc:
            raise DeadlineExceeded(f"the body did not arrive within {BODY_SECONDS:g} s") from exc
        messages = [{"type": "http.request", "body": bytes(arrival.body), "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        return replay

    async def _receive(self, receive: Receive, body: bytearray) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self.limit:
                raise TooLarge(
                    f"the body has more than {self.limit} bytes",
                    hint="Send less at a time, or increase the setting gateway_request_bytes.",
                )
            more = message.get("more_body", False)


@dataclass(slots=True, eq=False)
class _Arrival:
    began: float
    deadline: asyncio.Timeout
    body: bytearray = field(default_factory=bytearray)


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
        self._bodies = BodyReader(settings.request_bytes, settings.concurrency)
        self._requests = Places(settings.concurrency, "requests in progress")
        self._streams = Places(settings.streams, "event streams open")
        meter.add(GATEWAY_RATE_LIMITED, 0)
        meter.watch(GATEWAY_IN_FLIGHT, lambda: {(): self._requests.taken})
        meter.watch(GATEWAY_STREAMS, lambda: {(): self._streams.taken})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with a problem document."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meter.add(GATEWAY_RESPONSES, 1, str(message["status"]))
            await send(message)

        try:
            self._check(scope)
            if scope["method"] == "POST":
                receive = await self._bodies.read(receive)
            place: AbstractContextManager[None] = self._requests
            if scope["path"] in _PROBES:
                place = nullcontext()
            elif scope["method"] in ("GET", "HEAD") and scope["path"] in _STREAMS:
                place = self._streams
            with place:
                await _in_context(self._app, scope, receive, counted)
        except ClientDisconnect:
            await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, counted)
        except SearchError as exc:
            await problem(report_of(exc, GATEWAY))(scope, receive, counted)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        path = scope["path"]
        is_public = path in self._open or path == PAGE or path.startswith(ASSETS)
        self._policy.check(headers, is_page=is_public)
        address = (scope.get("client") or ("",))[0]
        if path not in _PROBES and (wait := self._rate.wait(address, time.monotonic())):
            self._meter.add(GATEWAY_RATE_LIMITED, 1)
            raise RateLimited("too many requests from this address", retry_after=wait)
        if self._token is not None and not is_public:
            check_bearer(headers, self._token)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    """Time of the last update, on the caller's clock."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Admits ``rate`` requests per second and address on average, and ``burst`` at once."""

    rate: float
    burst: int
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)

    def wait(self, address: str, now: float) -> float:
        """Count a request at ``now``; return 0 to admit it, else the seconds to wait."""
        bucket = self._buckets.pop(address, None) or _Bucket(self.burst, now)
        self._buckets[address] = bucket
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        elapsed = max(0.0, now - bucket.filled)
        bucket.tokens = min(self.burst, bucket.tokens + elapsed * self.rate)
        bucket.filled = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self.rate
        bucket.tokens -= 1
        return 0.0


async def _in_context(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Handle a request under the id in its header, or a new one.

    A span is recorded for requests that call tools, but not for probes, streams and the console.
    """
    with handling(from_headers(Headers(scope=scope))) as context:
        status = 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = context.call
            await send(message)

        method, path = scope["method"], str(scope["path"])
        if method != "POST" and not (method == "GET" and path.startswith("/collections")):
            await app(scope, receive, named)
            return
        notes = {"http.request.method": method, "url.path": path[:_LONGEST_PATH]}
        with span(method, SpanKind.SERVER, notes, parent=context.traceparent) as answered:
            await app(scope, receive, named)
            answered.set_attribute("http.response.status_code", status)
            if status >= _FAILED:
                fail(answered, str(status))
