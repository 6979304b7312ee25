"""Indexing events as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ability_search.edges.tool_calls import LiveConnection, Unavailable
from ability_search.extensions.gateway.request_bodies import checked_query
from ability_search.wire import COMPLETED, FAILED, PROGRESS, PUBLISHER
from kadi_client import Event, KadiError, Subscription

MEDIA_TYPE = "text/event-stream"
_LAST = (COMPLETED, FAILED)
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_ALIVE_SECONDS = 15.0
"""Interval of keep-alive comments when there are no events."""


class Streams:
    """The ASGI application of GET /events; ``jobId`` and ``collection`` filter the events.

    It sends the events of workers only, not those of other agents on the same channels.

    The stream of a job ends with the job; :meth:`close` ends all streams.
    """

    def __init__(self, live: LiveConnection) -> None:
        self._live = live
        self._open: set[Subscription] = set()

    def close(self) -> None:
        """End every stream."""
        for subscription in self._open:
            subscription.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects.

        Raises:
            InvalidInput: if a query parameter is unknown.
            Unavailable: if the broker cannot be reached.
        """
        if scope["method"] == "HEAD":
            await Response(headers=HEADERS, media_type=MEDIA_TYPE)(scope, receive, send)
            return
        filters = checked_query(QueryParams(scope["query_string"]), "jobId", "collection")
        connection = await self._live.connection()
        try:
            async with connection.subscribe(
                PROGRESS, *_LAST, from_providers_of=PUBLISHER
            ) as events:
                with self._kept(events):
                    frames = _frames(events, filters.get("jobId"), filters.get("collection"))
                    response = StreamingResponse(frames, headers=HEADERS, media_type=MEDIA_TYPE)
                    await response(scope, receive, send)
        except KadiError as exc:
            raise Unavailable("the broker does not answer", retry_after=1.0) from exc

    @contextmanager
    def _kept(self, subscription: Subscription) -> Iterator[None]:
        self._open.add(subscription)
        try:
            yield
        finally:
            self._open.discard(subscription)


async def _frames(
    events: Subscription, job: str | None, collection: str | None
) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    while True:
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                event = await anext(events, None)
        except TimeoutError:
            yield b": alive\n\n"
            continue
        if event is None:
            return
        data = event.data if isinstance(event.data, dict) else {}
        if job in (None, data.get("jobId")) and collection in (None, data.get("collection")):
            yield _frame(event)
            if job is not None and event.channel in _LAST:
                return


def _frame(event: Event) -> bytes:
    return frame(event.channel.rpartition(".")[2], msgspec.json.encode(event.data))


def frame(name: str, data: bytes) -> bytes:
    """Return a server-sent event; ``data`` is JSON on one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
