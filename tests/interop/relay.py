"""A WebSocket proxy before a broker: it keeps the frames that pass, and can cut the connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Frame = dict[str, Any]


@dataclass
class Relay:
    target: str
    url: str = ""
    sent: list[Frame] = field(default_factory=list)
    """By the clients, in order."""
    received: list[Frame] = field(default_factory=list)
    """From the broker, in order."""
    _clients: set[ServerConnection] = field(default_factory=set)

    def calls(self, method: str) -> list[Frame]:
        """Return the requests and notifications of a method, from both sides."""
        return [frame for frame in self.sent + self.received if frame.get("method") == method]

    def answer_to(self, request: Frame) -> Frame:
        """Return the broker's response to a client's request."""
        (answer,) = (
            frame
            for frame in self.received
            if "method" not in frame and frame["id"] == request["id"]
        )
        return answer

    def cut(self) -> None:
        """Break every connection off, as a network does that fails."""
        for client in self._clients:
            client.transport.abort()

    async def pass_on(self, client: ServerConnection) -> None:
        self._clients.add(client)
        try:
            async with connect(self.target, compression=None, max_size=None) as broker:
                _, pending = await asyncio.wait(
                    {
                        asyncio.create_task(_copy(client, broker, self.sent)),
                        asyncio.create_task(_copy(broker, client, self.received)),
                    },
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in pending:
                    task.cancel()
        finally:
            self._clients.discard(client)


async def _copy(
    source: ClientConnection | ServerConnection,
    target: ClientConnection | ServerConnection,
    frames: list[Frame],
) -> None:
    try:
        async for text in source:
            frames.append(json.loads(text))
            await target.send(text)
    except ConnectionClosed:
        pass


@asynccontextmanager
async def relaying(target: str) -> AsyncIterator[Relay]:
    """Run a relay before the broker at ``target``."""
    relay = Relay(target)
    async with serve(relay.pass_on, "127.0.0.1", 0, compression=None, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        relay.url = f"ws://127.0.0.1:{port}/kadi"
        yield relay
        relay.cut()
