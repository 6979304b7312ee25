"""Indexing events as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec
from starlette.responses import StreamingResponse

from ability_search.extensions.cli.tool_calls import LiveConnection, broker_unavailable
from ability_search.wire import COMPLETED, FAILED, PROGRESS, PUBLISHER
from kadi_client import KadiError, Subscription

MEDIA_TYPE = "text/event-stream"
_LAST = (COMPLETED, FAILED)
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_ALIVE_SECONDS = 15.0
"""Interval of keep-alive comments when there are no events."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of GET /events; :meth:`close` ends all of them."""

    live: LiveConnection
    _open: set[Subscription] = field(default_factory=set)

    def close(self) -> None:
        """End every stream."""
        for subscription in self._open:
            subscription.end()

    async def frames(self, job: str | None, collection: str | None) -> AsyncGenerator[bytes]:
        """Yield the events of workers, not those of other agents on the same channels.

        ``job`` and ``collection`` filter them; the stream of a job ends with the job.

        Raises:
            Unavailable: if the broker cannot be reached.
        """
        connection = await self.live.connection()
        channels = (PROGRESS, *_LAST)
        try:
            async with connection.subscribe(*channels, from_providers_of=PUBLISHER) as events:
                self._open.add(events)
                try:
                    async for each in _frames(events, job, collection):
                        yield each
                finally:
                    self._open.discard(events)
        except KadiError as exc:
            raise broker_unavailable(exc) from exc


async def _frames(
    events: Subscription, job: str | None, collection: str | None
) -> AsyncGenerator[bytes]:
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
            yield frame(event.channel.rpartition(".")[2], msgspec.json.encode(event.data))
            if job is not None and event.channel in _LAST:
                return


def streamed(first: bytes, frames: AsyncGenerator[bytes]) -> StreamingResponse:
    """Return the response of a frame, which was awaited, and of those that follow it."""

    async def body() -> AsyncGenerator[bytes]:
        async with aclosing(frames):
            yield first
            async for each in frames:
                yield each

    return StreamingResponse(body(), headers=HEADERS, media_type=MEDIA_TYPE)


def frame(name: str, data: bytes) -> bytes:
    """Return a server-sent event; ``data`` is JSON on one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
