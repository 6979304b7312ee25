"""A scripted broker: it shakes hands by itself, everything else is up to the test."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

PATIENCE = 10.0

Frame = dict[str, Any]


class Peer:
    """One client as the broker sees it."""

    def __init__(self, broker: FakeBroker, socket: ServerConnection) -> None:
        self.broker = broker
        self.socket = socket
        self.methods: list[str] = []
        self.public_key = ""
        self.closed = asyncio.Event()
        self._inbox: defaultdict[str, asyncio.Queue[Frame]] = defaultdict(asyncio.Queue)

    async def expect(self, method: str) -> Frame:
        """The next frame of that method; ``""`` stands for responses."""
        async with asyncio.timeout(PATIENCE):
            return await self._inbox[method].get()

    async def send(self, frame: Frame | str | bytes) -> None:
        text = json.dumps(frame) if isinstance(frame, dict) else frame
        await self.socket.send(text, text=True)

    async def reply(self, frame: Frame, result: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": frame["id"], "result": result})

    async def refuse(self, frame: Frame, error: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": frame["id"], "error": error})

    async def outcome(self, request_id: Any, **outcome: Any) -> None:
        params = {"requestId": request_id, **outcome}
        await self.send({"jsonrpc": "2.0", "method": "kadi.ability.response", "params": params})

    async def call(self, id_: Any, tool: str, tool_input: Any, **more: Any) -> None:
        params = {"toolName": tool, "toolInput": tool_input, "requestId": f"r-{id_}", **more}
        await self.send({"id": id_, "method": "kadi.ability.request", "params": params})

    async def drop(self) -> None:
        self.socket.transport.abort()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.closed.wait()

    async def run(self) -> None:
        try:
            async for text in self.socket:
                frame = json.loads(text)
                method = frame.get("method", "")
                self.methods.append(method)
                answer = self.broker.script.get(method)
                if answer is not None:
                    await answer(self, frame)
                self._inbox[method].put_nowait(frame)
        except ConnectionClosed:
            pass
        finally:
            self.closed.set()


class FakeBroker:
    """``script`` maps a method to a coroutine that answers it."""

    def __init__(self, *, heartbeat: Any = 30, port: int = 0, max_size: int = 2**25) -> None:
        self.heartbeat = heartbeat
        self.port = port
        self.max_size = max_size
        self.extended = False
        """Whether it announces the extensions of our own broker."""
        self.script: dict[str, Callable[[Peer, Frame], Any]] = {
            "kadi.session.hello": self._hello,
            "kadi.session.authenticate": self._authenticate,
            "kadi.agent.register": _answering({"status": "registered"}),
            "kadi.session.heartbeat": _answering("pong"),
            "kadi.event.subscribe": _answering({"status": "subscribed"}),
            "kadi.event.unsubscribe": _answering({"status": "unsubscribed"}),
            "kadi.event.publish": _answering({"status": "published"}),
        }
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/kadi"

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._connected, "127.0.0.1", self.port, compression=None, max_size=self.max_size
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def peer(self) -> Peer:
        """The next client that has authenticated."""
        async with asyncio.timeout(PATIENCE):
            return await self._peers.get()

    async def _connected(self, socket: ServerConnection) -> None:
        await Peer(self, socket).run()

    async def _hello(self, peer: Peer, frame: Frame) -> None:
        steps = ["kadi.session.authenticate"]
        await peer.reply(
            frame,
            {
                "nonce": "bm9uY2U=",
                "requiredSteps": steps,
                "heartbeatInterval": self.heartbeat,
                **({"directReplies": True} if self.extended else {}),
            },
        )

    async def _authenticate(self, peer: Peer, frame: Frame) -> None:
        params = frame["params"]
        key = load_der_public_key(base64.b64decode(params["publicKey"], validate=True))
        assert isinstance(key, Ed25519PublicKey)
        key.verify(base64.b64decode(params["signature"], validate=True), b"bm9uY2U=")
        peer.public_key = params["publicKey"]
        await peer.reply(frame, {"agentId": "agent-of-the-broker"})
        self._peers.put_nowait(peer)


def _answering(result: Any) -> Callable[[Peer, Frame], Any]:
    async def answer(peer: Peer, frame: Frame) -> None:
        await peer.reply(frame, result)

    return answer
