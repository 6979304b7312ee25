"""A deployer that a test scripts: it hears requests for secrets and answers them by events."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from nacl.bindings import crypto_sign_ed25519_pk_to_curve25519
from nacl.public import PublicKey, SealedBox

from kadi_client import Connection

PATIENCE = 20.0
SPKI_HEADER_BYTES = 12

Request = Mapping[str, Any]
Script = Callable[[Request], Iterable[Any]]
"""Returns the data of each answer to a request; a pair is a channel of its own and the data."""


def encryption_key(public_key: str) -> bytes:
    """The X25519 form of an agent's public key."""
    return crypto_sign_ed25519_pk_to_curve25519(base64.b64decode(public_key)[SPKI_HEADER_BYTES:])


def sealed(public_key: str, content: Any) -> str:
    """Base64 of a sealed box with ``content``, as JSON unless it is bytes."""
    plain = content if isinstance(content, bytes) else json.dumps(content).encode()
    box = SealedBox(PublicKey(encryption_key(public_key))).encrypt(plain)
    return base64.b64encode(box).decode()


def approval(request: Request, content: Any) -> dict[str, Any]:
    return {"status": "approved", "encrypted": sealed(request["publicKey"], content)}


def approving(secrets: Mapping[str, Any]) -> Script:
    return lambda request: [approval(request, secrets)]


@dataclass
class Deployer:
    """The frames it received."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def deployer(url: str, script: Script, *networks: str) -> AsyncIterator[Deployer]:
    """Answer every request by the script while the block runs."""
    known = Deployer()
    async with (
        Connection(url, name="deployer", networks=networks or ("global",)) as connection,
        connection.subscribe("secrets.request") as events,
    ):

        async def answer() -> None:
            async for event in events:
                known.requests.append(event.data)
                known.heard.set()
                own = f"secrets.response.{event.data['agentId']}"
                for each in script(event.data):
                    channel, data = each if isinstance(each, tuple) else (own, each)
                    await connection.publish(channel, data)

        answering = asyncio.create_task(answer())
        try:
            yield known
        finally:
            answering.cancel()
            await asyncio.wait([answering])
            if not answering.cancelled():
                answering.result()
