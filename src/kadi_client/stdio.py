"""Tools over a pair of byte streams, usually stdin and stdout, without a broker.

The peer may load the tools as KADI's own clients do (``readAgentJson``, ``invoke``,
``shutdown``), speak as to a broker (``kadi.session.hello`` first), or call at once. A response
uses the framing of its request, an event the form that fits the method of the call. While
standard output is served, anything else the process prints there is redirected to standard error,
so that only messages reach the peer.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from kadi_client.errors import METHOD_NOT_FOUND, FrameTooLarge, ProtocolError
from kadi_client.framing import Message, MessageReader, frame
from kadi_client.messages import Frame, decode_frame, notification
from kadi_client.params import DEFAULT_BEAT_SECONDS, CancelParams, describe, read, read_invocation
from kadi_client.pipes import PipeReader, PipeWriter
from kadi_client.provider import Caller, Provider
from kadi_client.session import MAX_MESSAGE_BYTES
from kadi_client.tools import Tool

logger = logging.getLogger(__name__)

LIST_METHOD = "kadi.ability.list"
_LEAVING = frozenset({"kadi.session.goodbye", "shutdown"})


async def serve_stdio(
    tools: Iterable[Tool] | Provider,
    *,
    name: str = "ability",
    version: str = "0.0.0",
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    grace: float = 10.0,
) -> None:
    """Serve tools over standard input and output, without a broker.

    Example:
        async def greet(tool_input: dict[str, Any], call: Call) -> dict[str, str]:
            return {"text": f"Hello, {tool_input['name']}!"}

        await serve_stdio([Tool("greet", "Greet by name.", {"type": "object"}, greet)])

    Returns when the input ends, the peer shuts the ability down or the output is closed. Running
    handlers then get ``grace`` seconds to finish, or none if the output is broken. The streams may
    be pipes, files or terminals; none of them blocks the event loop.

    Args:
        tools: Tools to serve, or what runs their handlers.
        name: Name of the ability, returned by ``readAgentJson``.
        version: Version of the ability, returned by ``readAgentJson``.
        stdin: Stream to read requests from; the process's standard input if not given.
        stdout: Stream to write responses to; the process's standard output if not given.
        max_message_bytes: Maximum size of a message in either direction.
        grace: Seconds for running handlers to finish at the end.

    Raises:
        ValueError: if two tools share a name.
    """
    provider = tools if isinstance(tools, Provider) else Provider(tools)
    with _output(stdout) as output:
        reader = PipeReader((stdin or sys.stdin.buffer).fileno())
        writer = PipeWriter(output, reader.stop)
        card = {"name": name, "version": version}
        peer = _Peer(provider, writer, card, max_message_bytes)
        remaining = 0.0
        try:
            await _receive(reader, peer, max_message_bytes)
            remaining = 0.0 if writer.broken else grace
        finally:
            reader.stop()
            await provider.drain(remaining)
            await writer.finish()


@contextlib.contextmanager
def _output(stdout: BinaryIO | None) -> Iterator[int]:
    """Yield the file descriptor to write messages to."""
    if stdout is not None:
        yield stdout.fileno()
        return
    sys.stdout.flush()
    standard = sys.stdout.fileno()
    messages = os.dup(standard)
    try:
        os.dup2(sys.stderr.fileno(), standard)
        yield messages
    finally:
        sys.stdout.flush()
        os.dup2(messages, standard)
        os.close(messages)


async def _receive(reader: PipeReader, peer: _Peer, max_message_bytes: int) -> None:
    messages = MessageReader(max_message_bytes)
    while piece := await reader.next():
        for item in messages.feed(piece):
            if not peer.receive(item):
                return
    for item in messages.end():
        peer.receive(item)


@dataclass(eq=False)
class _Peer(Caller):
    """The peer: its session methods are answered here, its calls by the provider."""

    provider: Provider
    writer: PipeWriter
    card: Mapping[str, str]
    max_message_bytes: int
    _headed: bool = True
    _loaded: bool = False

    def addressed(self, *, headed: bool, loaded: bool = False) -> _Peer:
        """Return the same peer, to be sent messages in one of the two framings.

        ``loaded`` is true if it loaded the ability and expects events in that form.
        """
        peer = copy.copy(self)
        peer._headed, peer._loaded = headed, loaded
        return peer

    def send(self, message: bytes) -> None:
        if len(message) > self.max_message_bytes:
            raise FrameTooLarge(len(message), self.max_message_bytes)
        self.writer.put(frame(message, headed=self._headed))

    async def drain(self) -> None:
        await self.writer.drain()

    def send_event(self, channel: str, data: Any) -> None:
        if self._loaded:
            self.send(notification("event", {"name": channel, "data": data}))
            return
        event = {
            "channel": channel,
            "data": data,
            "networkId": None,
            "timestamp": round(time.time() * 1000),
            "source": None,
        }
        self.send(notification("kadi.event.delivery", event))

    def receive(self, item: Message | ProtocolError) -> bool:
        """Process a message, or the error in its place; return False when the peer leaves."""
        peer = self.addressed(headed=not isinstance(item, Message) or item.headed)
        id_ = None
        try:
            if isinstance(item, ProtocolError):
                raise item
            message = decode_frame(item.body)
            id_ = message.id if message.has_id else None
            if message.is_response:
                return True
            if message.method == "kadi.ability.cancel":
                peer.provider.cancel(str(read(message.params, CancelParams).request_id))
            if message.has_id:
                peer._answer(message)
            return message.method not in _LEAVING
        except ProtocolError as exc:
            logger.warning("message refused: %s", exc)
            peer.fail(id_, str(exc), code=exc.code)
            return True

    def _answer(self, message: Frame) -> None:
        if message.method in ("kadi.ability.request", "invoke"):
            invocation = read_invocation(message)
            loaded = message.method == "invoke"
            if loaded or invocation.tool != LIST_METHOD:
                self.provider.accept(invocation, self.addressed(headed=self._headed, loaded=loaded))
                return
        self.respond(message.id, self._result(message.method))

    def _result(self, method: str | None) -> Any:
        listing = {"tools": [describe(tool) for tool in self.provider.tools]}
        match method:
            case "kadi.ability.list" | "kadi.ability.request":
                return listing
            case "readAgentJson":
                return {**self.card, **listing}
            case "shutdown":
                return {"ok": True}
            case "kadi.session.ping" | "kadi.session.heartbeat":
                return "pong"
            case "kadi.session.hello":
                # The process at the other end of the pipes is trusted: no authentication.
                return {
                    "nonce": secrets.token_hex(16),
                    "requiredSteps": [],
                    "heartbeatInterval": DEFAULT_BEAT_SECONDS,
                }
            case "kadi.session.goodbye" | "kadi.ability.cancel":
                return None
            case _:
                raise ProtocolError(f"unknown method: {method}", code=METHOD_NOT_FOUND)
