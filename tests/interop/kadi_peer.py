"""A KADI client of its own, written from the description of the protocol alone.

It shares no code with the project, so what it and the broker agree on is the protocol, not a
common mistake. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

PATIENCE = 10.0


class Peer:
    """One connection, driven step by step; frames not waited for yet are kept."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.key = Ed25519PrivateKey.generate()
        self.agent_id = ""
        self.kept: list[dict[str, Any]] = []
        self.last_id = 0

    @classmethod
    async def open(cls, url: str, **options: Any) -> Peer:
        return cls(await connect(url, compression=None, max_size=None, **options))

    @classmethod
    async def join(cls, url: str, **register: Any) -> Peer:
        """Connect, authenticate, and register if there is anything to register."""
        peer = await cls.open(url)
        await peer.log_in()
        if register:
            tools = [
                {"name": tool, "description": f"the {tool}", "inputSchema": {"type": "object"}}
                if isinstance(tool, str)
                else tool
                for tool in register.pop("tools", [])
            ]
            answer = await peer.request("kadi.agent.register", {"tools": tools, **register})
            assert answer["status"] == "registered"
        return peer

    async def log_in(self) -> None:
        hello = await self.request("kadi.session.hello", {"role": "agent"})
        self.agent_id = (await self.authenticate(hello["nonce"]))["agentId"]

    async def authenticate(self, nonce: str, **changes: Any) -> Any:
        params = {"publicKey": self.public_key, "signature": self.sign(nonce), "nonce": nonce}
        return await self.request("kadi.session.authenticate", params | changes)

    @property
    def public_key(self) -> str:
        der = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(der).decode()

    def sign(self, nonce: str) -> str:
        return base64.b64encode(self.key.sign(nonce.encode("utf-8"))).decode()

    async def send(self, frame: dict[str, Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.socket.send(json.dumps(frame))

    async def send_text(self, text: str | bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.socket.send(text)

    async def expect(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first frame, kept or yet to come, that fits."""
        for position, kept in enumerate(self.kept):
            if wanted(kept):
                return self.kept.pop(position)
        async with asyncio.timeout(PATIENCE):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                if wanted(frame):
                    return frame
                self.kept.append(frame)

    async def exchange(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Send a request as it is and await the response with its id."""
        await self.send(frame)
        return await self.expect(
            lambda answer: "method" not in answer and answer["id"] == frame["id"]
        )

    async def request(self, method: str, params: Any = None) -> Any:
        """The result of a request; an error is returned whole."""
        self.last_id += 1
        frame = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params or {}}
        answer = await self.exchange(frame)
        return answer.get("result", answer)

    async def start(self, tool: str, tool_input: Any = None, **options: Any) -> str:
        """Start a call that the broker accepts; its request id."""
        params = {"toolName": tool, "toolInput": tool_input or {}, **options}
        pending = await self.request("kadi.ability.request", params)
        assert pending["status"] == "pending", pending
        request_id: str = pending["requestId"]
        return request_id

    async def outcome(self, request_id: str) -> dict[str, Any]:
        """The parameters of the notification that ends a call."""
        frame = await self.notified(
            "kadi.ability.response", lambda params: params["requestId"] == request_id
        )
        assert "id" not in frame
        params: dict[str, Any] = frame["params"]
        return params

    async def call(self, tool: str, tool_input: Any = None, **options: Any) -> dict[str, Any]:
        return await self.outcome(await self.start(tool, tool_input, **options))

    async def notified(
        self, method: str, fits: Callable[[dict[str, Any]], bool] = lambda params: True
    ) -> dict[str, Any]:
        return await self.expect(
            lambda frame: frame.get("method") == method and fits(frame["params"])
        )

    async def asked(self) -> dict[str, Any]:
        """The next call this peer is to serve, as a frame."""
        return await self.notified("kadi.ability.request")

    async def answer(self, asked: dict[str, Any], result: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def fail(self, asked: dict[str, Any], error: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})

    async def synchronise(self) -> None:
        """Return once the broker has taken in everything sent so far."""
        assert await self.request("kadi.session.ping") == "pong"

    async def closed(self, patience: float = PATIENCE) -> int:
        """The close code, once the broker has closed the connection."""
        async with asyncio.timeout(patience):
            try:
                while True:
                    self.kept.append(json.loads(await self.socket.recv()))
            except ConnectionClosed:
                assert self.socket.close_code is not None
                return self.socket.close_code

    async def leave(self) -> None:
        await self.socket.close()

    def vanish(self) -> None:
        """Die without a word: no goodbye, no close frame."""
        self.socket.transport.abort()
