"""Events received from the network."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Self

import msgspec

from kadi_client.errors import KadiError
from kadi_client.topics import Topics

logger = logging.getLogger(__name__)

_REFUSED_SECONDS = 1.0
"""Seconds in which events of an agent are dropped before its tools are looked up again."""
_REFUSED_AGENTS = 1024


class Event(msgspec.Struct, frozen=True, rename={"network": "networkId"}):
    """An event that an agent published; the params of ``kadi.event.delivery``.

    Attributes:
        channel: Words separated by dots.
        data: Plain Python values.
        network: Network it was published on; ``None`` if the broker did not name it.
        timestamp: As the broker sent it, usually milliseconds since 1970.
        source: As the broker sent it, usually the id of the agent that published.
    """

    channel: str
    data: Any = None
    network: str | None = None
    timestamp: Any = None
    source: Any = None


class Subscription:
    """An asynchronous iterator over events; :meth:`Connection.subscribe` creates it.

    Example:
        async with broker.subscribe("kitchen.*", "garden.*") as events:
            await broker.publish("garden.gate", {"open": True})
            event = await anext(events)
            print(event.channel, event.data, events.dropped)

    At most ``max_queued`` events wait to be read. When they are as many, the oldest is dropped and
    counted in ``dropped``. The subscription survives reconnects, but events that are published
    meanwhile are lost. The iteration ends when the connection is closed.

    With ``publishers``, events of agents that it does not return are dropped; it is called for an
    event of an agent that is not known yet. A broker that does not name the publisher of an event
    vouches for it.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        network: str | None,
        max_queued: int,
        activate: Callable[[Subscription], Awaitable[None]],
        deactivate: Callable[[Subscription], Awaitable[None]],
        publishers: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        if not patterns:
            raise ValueError("patterns: name at least one channel to subscribe to")
        if max_queued < 1:
            raise ValueError("max_queued must be at least 1")
        self.patterns = tuple(patterns)
        self.network = network
        self.dropped = 0
        self._topics: Topics[None] = Topics()
        for pattern in patterns:
            self._topics.add(pattern, None)
        self._queue: deque[Event] = deque(maxlen=max_queued)
        self._arrived = asyncio.Event()
        self._activate = activate
        self._deactivate = deactivate
        self._active = False
        self._sources = 0
        self._publishers = publishers
        self._believed: Collection[str] = ()
        self._refused: dict[str, float] = {}

    def put(self, event: Event) -> None:
        """Queue an event if it matches, in place of the oldest one if the queue is full.

        An event without a network matches every network.
        """
        if None not in (self.network, event.network) and self.network != event.network:
            return
        if not self._topics.match(event.channel):
            return
        if len(self._queue) == self._queue.maxlen:
            self.dropped += 1
        self._queue.append(event)
        self._arrived.set()

    def attach(self) -> None:
        """Count another connection that events come from."""
        self._sources += 1

    def detach(self) -> None:
        """Note that a connection is closed for good; with the last one the iteration ends."""
        self._sources -= 1
        if self._sources <= 0:
            self.end()

    def end(self) -> None:
        """Let the iteration finish once the queue is empty."""
        self._active = False
        self._arrived.set()

    async def __aenter__(self) -> Self:
        self._active = True
        await self._activate(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.end()
        await self._deactivate(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            while not self._queue:
                if not self._active:
                    raise StopAsyncIteration
                self._arrived.clear()
                await self._arrived.wait()
            event = self._queue[0]
            believed = await self._believes(event.source)
            # Meanwhile newer events may have taken its place in a full queue.
            if self._queue and self._queue[0] is event:
                self._queue.popleft()
                if believed:
                    return event

    async def _believes(self, source: Any) -> bool:
        """Return whether events of an agent are delivered."""
        if self._publishers is None or source is None or str(source) in self._believed:
            return True
        source = str(source)
        clock = asyncio.get_running_loop().time
        if clock() - self._refused.get(source, float("-inf")) < _REFUSED_SECONDS:
            return False
        try:
            self._believed = await self._publishers()
        except KadiError as exc:
            text = "an event of agent %s is dropped, its tools are unknown: %s"
            logger.warning(text, source, exc)
            return False
        if source in self._believed:
            return True
        if source not in self._refused:
            logger.warning("events of agent %s are dropped: it does not offer the tool", source)
        if len(self._refused) == _REFUSED_AGENTS:
            self._refused.clear()
        self._refused[source] = clock()
        return False


def pattern_params(patterns: Iterable[str], network: str | None) -> list[dict[str, Any]]:
    """Return the params of each request that begins or ends a subscription."""
    within = {} if network is None else {"networkId": network}
    return [{"pattern": pattern, **within} for pattern in dict.fromkeys(patterns)]
