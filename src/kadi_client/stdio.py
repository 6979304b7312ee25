"""Tools over a pair of byte streams, usually stdin and stdout, without a broker.

The peer may load the tools as KADI's own clients do (``readAgentJson``, ``invoke``,
``shutdown``), speak as to a broker (``kadi.session.hello`` first), or call at once. A response
uses the framing of its request, an event the form that fits the method of the call. While
standard output is served, anything else the process prints there is redirected to standard error,
so that only messages reach the peer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from kadi_client.errors import METHOD_NOT_FOUND, SERVER_ERROR, FrameTooLarge, ProtocolError
from kadi_client.framing import Message, MessageReader, frame
from kadi_client.messages import (
    Frame,
    Raw,
    decode_frame,
    error_response,
    notification,
    response,
    short_text,
)
from kadi_client.params import DEFAULT_BEAT_SECONDS, CancelParams, describe, read, read_invocation
from kadi_client.pipes import PipeReader, PipeWriter
from kadi_client.provider import Observe, Provider, noted
from kadi_client.session import MAX_MESSAGE_BYTES
from kadi_client.tools import Tool

logger = logging.getLogger(__name__)

LIST_METHOD = "kadi.ability.list"
_LEAVING = frozenset({"kadi.session.goodbye", "shutdown"})


async def serve_stdio(
    tools: Iterable[Tool],
    *,
    name: str = "ability",
    version: str = "0.0.0",
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_concurrent: int = 128,
    max_queued: int = 1024,
    grace: float = 10.0,
    observe: Observe = noted,
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
        tools: Tools to serve.
        name: Name of the ability, returned by ``readAgentJson``.
        version: Version of the ability, returned by ``readAgentJson``.
        stdin: Stream to read requests from; the process's standard input if not given.
        stdout: Stream to write responses to; the process's standard output if not given.
        max_message_bytes: Maximum size of a message in either direction.
        max_concurrent: Maximum number of handlers running at a time.
        max_queued: Maximum number of calls waiting for a handler; more are refused.
        grace: Seconds for running handlers to finish at the end.
        observe: See :data:`kadi_client.provider.Observe`.

    Raises:
        ValueError: if two tools share a name.
    """
    provider = Provider(
        tools, max_concurrent=max_concurrent, max_queued=max_queued, observe=observe
    )
    with _output(stdout) as output:
        await _serve(
            provider,
            PipeReader((stdin or sys.stdin.buffer).fileno()),
            output,
            card={"name": name, "version": version},
            max_message_bytes=max_message_bytes,
            grace=grace,
        )


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


async def _serve(
    provider: Provider,
    reader: PipeReader,
    output: int,
    *,
    card: Mapping[str, str],
    max_message_bytes: int,
    grace: float,
) -> None:
    writer = PipeWriter(output, reader.stop)
    desk = _Desk(provider, writer, card, max_message_bytes)
    remaining = 0.0
    try:
        await _receive(reader, desk, max_message_bytes)
        remaining = 0.0 if writer.broken else grace
    finally:
        reader.stop()
        await provider.drain(remaining)
        await writer.finish()


async def _receive(reader: PipeReader, desk: _Desk, max_message_bytes: int) -> None:
    messages = MessageReader(max_message_bytes)
    while piece := await reader.next():
        for item in messages.feed(piece):
            if not desk.receive(item):
                return
    for item in messages.end():
        desk.receive(item)


class _Peer:
    """The peer as the caller of our tools, addressed in one of the two framings.

    ``loaded`` is true if it loaded the ability and expects events in that form.
    """

    def __init__(
        self, writer: PipeWriter, max_message_bytes: int, *, headed: bool, loaded: bool = False
    ) -> None:
        self._writer = writer
        self._max_message_bytes = max_message_bytes
        self._headed = headed
        self._loaded = loaded

    async def respond(self, id_: Raw, result: Any) -> None:
        await self._writer.write(self._framed(response(id_, result)))

    def confirm(self, id_: Raw, result: Any) -> None:
        self._writer.put(self._framed(response(id_, result)))

    def fail(self, id_: Raw | None, message: str, *, code: int = SERVER_ERROR) -> None:
        error = error_response(id_, short_text(message), code=code)
        self._writer.put(frame(error, headed=self._headed))

    def loading(self) -> _Peer:
        """Return the same peer, with events in the form for one that loaded the ability."""
        return _Peer(self._writer, self._max_message_bytes, headed=self._headed, loaded=True)

    async def publish(self, channel: str, data: Any) -> None:
        try:
            event = self._framed(self._event(channel, data))
        except (FrameTooLarge, TypeError, ValueError, OverflowError, RecursionError) as exc:
            logger.warning("event on %s not published: %s", channel, type(exc).__name__)
            return
        await self._writer.write(event)

    def _event(self, channel: str, data: Any) -> bytes:
        if self._loaded:
            return notification("event", {"name": channel, "data": data})
        params = {
            "channel": channel,
            "data": data,
            "networkId": None,
            "timestamp": round(time.time() * 1000),
            "source": None,
        }
        return notification("kadi.event.delivery", params)

    def _framed(self, message: bytes) -> bytes:
        if len(message) > self._max_message_bytes:
            raise FrameTooLarge(len(message), self._max_message_bytes)
        return frame(message, headed=self._headed)


class _Desk:
    """A dispatcher that answers session methods itself and passes calls to the provider."""

    def __init__(
        self,
        provider: Provider,
        writer: PipeWriter,
        card: Mapping[str, str],
        max_message_bytes: int,
    ) -> None:
        self._provider = provider
        self._card = card
        self._plain = _Peer(writer, max_message_bytes, headed=False)
        self._headed = _Peer(writer, max_message_bytes, headed=True)

    def receive(self, item: Message | ProtocolError) -> bool:
        """Process a message, or the error in its place; return False when the peer leaves."""
        if isinstance(item, ProtocolError):
            self._refuse(self._headed, None, item)
            return True
        peer = self._headed if item.headed else self._plain
        try:
            message = decode_frame(item.body)
        except ProtocolError as exc:
            self._refuse(peer, None, exc)
            return True
        if message.is_response:
            return True
        try:
            return self._act(message, peer)
        except ProtocolError as exc:
            self._refuse(peer, message.id if message.has_id else None, exc)
            return True

    def _refuse(self, peer: _Peer, id_: Raw | None, error: ProtocolError) -> None:
        logger.warning("message refused: %s", error)
        peer.fail(id_, str(error), code=error.code)

    def _act(self, message: Frame, peer: _Peer) -> bool:
        if message.method == "kadi.ability.cancel":
            self._provider.cancel(str(read(message.params, CancelParams).request_id))
        if message.has_id:
            self._answer(message, peer)
        return message.method not in _LEAVING

    def _answer(self, message: Frame, peer: _Peer) -> None:
        match message.method:
            case "kadi.ability.request":
                invocation = read_invocation(message)
                if invocation.tool == LIST_METHOD:
                    peer.confirm(message.id, self._listing())
                else:
                    self._provider.accept(invocation, peer)
            case "invoke":
                self._provider.accept(read_invocation(message), peer.loading())
            case "readAgentJson":
                peer.confirm(message.id, {**self._card, **self._listing()})
            case "shutdown":
                peer.confirm(message.id, {"ok": True})
            case "kadi.ability.list":
                peer.confirm(message.id, self._listing())
            case "kadi.session.ping" | "kadi.session.heartbeat":
                peer.confirm(message.id, "pong")
            case "kadi.session.hello":
                # The process at the other end of the pipes is trusted: no authentication.
                hello = {
                    "nonce": secrets.token_hex(16),
                    "requiredSteps": [],
                    "heartbeatInterval": DEFAULT_BEAT_SECONDS,
                }
                peer.confirm(message.id, hello)
            case "kadi.session.goodbye" | "kadi.ability.cancel":
                peer.confirm(message.id, None)
            case _:
                peer.fail(message.id, f"unknown method: {message.method}", code=METHOD_NOT_FOUND)

    def _listing(self) -> dict[str, Any]:
        return {"tools": [describe(tool) for tool in self._provider.tools]}
