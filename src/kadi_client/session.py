"""The client's half of a KADI session: handshake, correlation, liveness."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NoReturn

from websockets.exceptions import ConnectionClosed

from kadi_client import errors
from kadi_client.identity import Identity
from kadi_client.messages import NULL, Frame, Raw, decode_frame, notification, request
from kadi_client.params import (
    AbilityResponse,
    Authenticated,
    CancelParams,
    Hello,
    Invocation,
    Registered,
    acknowledged_request,
    describe,
    error_in,
    own_key,
    read,
    read_invocation,
    seconds_between_beats,
)
from kadi_client.provider import NOT_JSON, Caller
from kadi_client.sockets import ClientSocket
from kadi_client.subscriptions import Event
from kadi_client.tools import REQUIRE_AGENT, Tool, with_hints

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
BEATS_UNTIL_DEAD = 3

Received = Invocation | CancelParams | Event
"""A message of a broker that is no answer."""


class OpenCalls:
    """Calls waiting for their outcome, by key and by request id.

    The caller chooses the request id. A broker may acknowledge a call under an id of its own; an
    outcome that overtakes the acknowledgement is kept while an acknowledgement is outstanding, up
    to ``max_bytes`` in total: then the oldest is dropped.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._unacknowledged: set[int] = set()
        self._key_of: dict[str, int] = {}
        self._request_of: dict[int, str] = {}
        self._max_bytes = max_bytes
        self._early: dict[str, AbilityResponse] = {}
        self._early_bytes = 0

    def __len__(self) -> int:
        return len(self._request_of)

    def __contains__(self, key: int) -> bool:
        return key in self._request_of

    def start(self, key: int, request_id: str) -> None:
        """Add a call with its request id."""
        self._unacknowledged.add(key)
        self._key_of[request_id] = key
        self._request_of[key] = request_id

    def acknowledge(self, key: int, request_id: str) -> AbilityResponse | None:
        """Record the request id under which the broker acknowledges a call.

        Returns:
            The outcome of the call if it arrived earlier.
        """
        outcome = self._drop(request_id)
        self._forget(key)
        self._key_of[request_id] = key
        self._request_of[key] = request_id
        self._settle(key)
        return outcome

    def key_of(self, outcome: AbilityResponse) -> int | None:
        """Return the key of the call with this outcome; ``None`` if it is unknown for now."""
        request_id = str(outcome.request_id)
        key = self._key_of.get(request_id)
        # Only an unacknowledged call can claim it later; if there is none, the answer is late.
        if key is None and self._unacknowledged:
            self._drop(request_id)
            self._early[request_id] = outcome
            self._early_bytes += _size(outcome)
            while self._early_bytes > self._max_bytes:
                self._drop(next(iter(self._early)))
        return key

    def end(self, key: int) -> str | None:
        """End a call and return its request id; ``None`` if the call is unknown."""
        if key not in self._request_of:
            return None
        self._settle(key)
        self._forget(key)
        return self._request_of.pop(key)

    def _forget(self, key: int) -> None:
        """Forget the request id of a call, unless another call has been acknowledged under it."""
        request_id = self._request_of.get(key, "")
        if self._key_of.get(request_id) == key:
            del self._key_of[request_id]

    def _settle(self, key: int) -> None:
        self._unacknowledged.discard(key)
        if not self._unacknowledged:
            self._early.clear()
            self._early_bytes = 0

    def _drop(self, request_id: str) -> AbilityResponse | None:
        outcome = self._early.pop(request_id, None)
        if outcome is not None:
            self._early_bytes -= _size(outcome)
        return outcome


def _size(outcome: AbilityResponse) -> int:
    """Return the bytes of an outcome, with some for the objects that hold it."""
    return len(outcome.result) + len(outcome.error) + 256


@dataclass(eq=False)
class Session(Caller):
    """One session with a broker over one WebSocket.

    Frames leave in the order in which they are queued. Their size is checked before: a frame over
    ``max_message_bytes`` raises :class:`FrameTooLarge` and changes nothing. Every request has a
    key, under which :meth:`answer_to` waits for its answer. Times are those of the loop's clock.
    """

    socket: ClientSocket
    identity: Identity
    _: KW_ONLY
    role: str = "agent"
    name: str | None = None
    version: str | None = None
    networks: Sequence[str] = ("global",)
    max_message_bytes: int = MAX_MESSAGE_BYTES
    wall_clock: Callable[[], float] = time.time
    ready: bool = field(default=False, init=False)
    """Whether the handshake is complete."""
    agent_id: str = field(init=False)
    """The agent id assigned by the broker; before authentication, the expected one."""
    next_beat: float = field(default=float("inf"), init=False)
    """Time of the next call of :meth:`tick`."""

    def __post_init__(self) -> None:
        self.agent_id = self.identity.agent_id
        self._outgoing: deque[bytes] = deque()
        self._waits_for_peer = asyncio.Event()
        self._last_key = 0
        self._waiters: dict[int, asyncio.Future[Raw]] = {}
        self._calls = OpenCalls(max_bytes=self.max_message_bytes)
        self._extended = False
        # Request ids are UUIDs, random except for the last group, which is a counter.
        self._request_prefix = str(uuid.uuid4())[:24]
        self._beat_interval = seconds_between_beats(None)
        self._last_heard = 0.0
        self._refused: Exception | None = None
        self._lost: str | None = None
        self._on_lost: Callable[[], None] | None = None

    async def run(
        self,
        tools: Sequence[Tool],
        *,
        on_ready: Callable[[], None],
        on_received: Callable[[Received], None],
        on_lost: Callable[[], None],
    ) -> NoReturn:
        """Do the handshake and read until the connection ends, then wake all waiting requests.

        The callbacks must not raise. The session is lost before its requests wake.

        Raises:
            NotConnected: when the connection ends, whichever side ended it.
            KadiError: if the handshake fails.
        """
        clock = asyncio.get_running_loop().time

        def take(message: bytes) -> None:
            received = self.receive(message, clock())
            if received is not None:
                on_received(received)

        async def open_and_beat() -> None:
            try:
                await self.shake_hands(tools)
            except (errors.KadiError, *NOT_JSON) as exc:
                self._refused = exc
            else:
                on_ready()
                await self._beat()
                self.lose("the broker has stopped responding")
            self.socket.transport.abort()

        self._on_lost = on_lost
        tasks = [asyncio.create_task(open_and_beat()), asyncio.create_task(self._write())]
        try:
            await self.socket.deliver(take)
        except ConnectionClosed as exc:
            if self._refused is not None:
                raise self._refused from None
            self.lose(f"the connection to the broker was lost: {exc}")
            raise errors.NotConnected(self._lost) from exc
        finally:
            self.lose("the connection to the broker was closed")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def lose(self, reason: str) -> None:
        """Mark the session as lost: all waiting requests fail with :class:`NotConnected`."""
        if self._lost is not None:
            return
        self._lost = reason
        if self._on_lost is not None:
            self._on_lost()
        for waiter in self._waiters.values():
            _fail(waiter, errors.NotConnected(reason))

    async def shake_hands(self, tools: Sequence[Tool]) -> None:
        """Say hello, authenticate and register.

        Raises:
            AuthenticationError: if the broker refuses the identity.
            KadiError: if it refuses anything else, or the tools are too large to send.
        """
        params: dict[str, Any] = {"role": self.role, "networks": list(self.networks)}
        if self.name:
            params["name"] = self.name
        if self.version:
            params["version"] = self.version
        hello = read(await self._ask("kadi.session.hello", params), Hello)
        self._beat_interval = seconds_between_beats(hello.heartbeat_interval)
        self._extended = hello.direct_replies is True
        proof = {
            "publicKey": self.identity.public_key,
            "signature": self.identity.sign(hello.nonce),
            "nonce": hello.nonce,
        }
        try:
            authenticated = await self._ask("kadi.session.authenticate", proof)
        except errors.RemoteError as exc:
            raise errors.AuthenticationError(str(exc)) from exc
        self.agent_id = read(authenticated, Authenticated).agent_id or self.agent_id
        registration = self.registration(tools)
        try:
            warn_of_dropped_networks(await self._ask("kadi.agent.register", registration))
        except errors.RemoteError:
            if tools:
                raise
            logger.warning("the broker refused a registration without tools; continuing without")
        self.ready = True
        self.next_beat = self._last_heard + self._beat_interval

    def registration(self, tools: Sequence[Tool]) -> dict[str, Any]:
        """Return the params of a request that replaces the tools of this session."""
        params: dict[str, Any] = {
            "tools": [describe(tool) for tool in tools],
            "networks": list(self.networks),
        }
        if self.name:
            params["displayName"] = self.name
        return params

    async def _beat(self) -> None:
        """Send heartbeats until the broker has been silent for too long."""
        clock = asyncio.get_running_loop().time
        while self.tick(clock()):
            pause = self.next_beat - clock()
            await asyncio.sleep(max(0.0, pause))

    def tick(self, now: float) -> bool:
        """Send a heartbeat when one is due.

        Returns:
            False if the broker has been silent for too long and counts as dead.
        """
        if now - self._last_heard > self._beat_interval * BEATS_UNTIL_DEAD:
            return False
        if now >= self.next_beat:
            self.post("kadi.session.heartbeat", {"timestamp": round(self.wall_clock() * 1000)})
            self.next_beat = now + self._beat_interval
        return True

    # Requests

    def invoke(
        self,
        tool: str,
        tool_input: Any,
        *,
        timeout: float | None = None,
        target_agent: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> int:
        """Call a tool on the network.

        Args:
            tool: Name of the tool.
            tool_input: Input of the tool, a JSON object.
            timeout: Timeout in seconds; the broker passes it on to the provider.
            target_agent: Id of the agent that must serve the call.
            context: Call id and trace for the callee, see :mod:`kadi_client.context`; sent only
                to a broker that passes them on.

        Returns:
            The key of the request.

        Raises:
            FrameTooLarge: if the input is too large to send.
            TypeError: if the input is not JSON.
        """
        if target_agent is not None:
            tool_input = with_hints(tool_input, {REQUIRE_AGENT: target_agent})
        request_id = f"{self._request_prefix}{self._last_key + 1:012x}"
        params = {"toolName": tool, "toolInput": tool_input, "requestId": request_id}
        if timeout is not None:
            params["timeout"] = max(1, round(timeout * 1000))
        if self._extended:
            params["directReply"] = True
            if context:
                params["_meta"] = context
        key = self.request("kadi.ability.request", params)
        self._calls.start(key, request_id)
        return key

    def request(self, method: str, params: Any) -> int:
        """Call a method of the broker itself; returns and raises as :meth:`invoke` does."""
        key = self.post(method, params)
        waiter = self._waiters[key] = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            _fail(waiter, errors.NotConnected(self._lost))
        return key

    def post(self, method: str, params: Any) -> int:
        """Call a method of the broker and ignore its answer."""
        self.send(request(self._last_key + 1, method, params))
        self._last_key += 1
        return self._last_key

    async def answer_to(self, key: int, deadline: float | None = None) -> Raw:
        """Wait for the answer to the request numbered ``key``.

        Cancellation and the deadline abandon the request; an invocation is then cancelled at the
        broker.

        Raises:
            NotConnected: if the session is lost first.
            RemoteError: if the answer is an error.
            TimeoutError: if there is no answer before the deadline.
        """
        waiter = self._waiters[key]
        timer = None
        if deadline is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_at(deadline, _fail, waiter, TimeoutError())
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiters[key]
            request_id = self._calls.end(key)
            if request_id is not None:
                # Brokers that do not know the message ignore it.
                self.send(notification("kadi.ability.cancel", {"requestId": request_id}))

    async def _ask(self, method: str, params: Any) -> Raw:
        return await self.answer_to(self.request(method, params))

    def publications(self, channel: str, data: Any, network: str | None) -> list[dict[str, Any]]:
        """Return the params of the requests that publish an event on one network, or on all.

        A broker without our extensions publishes on one network at a time.
        """
        event = {"channel": channel, "data": data}
        if network is None and self._extended:
            return [event]
        networks = self.networks if network is None else [network]
        return [{**event, "networkId": each} for each in networks]

    # Outgoing

    def send(self, frame: bytes) -> None:
        """Send a frame without waiting; what the broker cannot take now follows.

        If the connection is closing, it is dropped.

        Raises:
            FrameTooLarge: if it is over the limit.
        """
        if len(frame) > self.max_message_bytes:
            raise errors.FrameTooLarge(len(frame), self.max_message_bytes)
        self._outgoing.append(frame)
        self.socket.send_at_once(self._next_to_send)
        if self._outgoing:
            self._waits_for_peer.set()

    def send_event(self, channel: str, data: Any) -> None:
        """Publish an event on all networks of this agent; raises as :meth:`invoke` does."""
        for params in self.publications(channel, data, None):
            self.post("kadi.event.publish", params)

    async def drain(self) -> None:
        """Send what is queued; wait while the broker is slow to read."""
        if not self._outgoing:
            return
        with contextlib.suppress(ConnectionClosed):
            await self.socket.send_all(self._next_to_send)

    async def goodbye(self, timeout: float) -> None:
        """Announce an orderly close; wait at most ``timeout`` seconds to send it."""
        self.post("kadi.session.goodbye", {})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.drain()

    def _next_to_send(self) -> bytes | None:
        return self._outgoing.popleft() if self._outgoing else None

    async def _write(self) -> None:
        """Send frames that :meth:`send` left in the queue."""
        while True:
            await self._waits_for_peer.wait()
            self._waits_for_peer.clear()
            await self.drain()

    # Incoming

    def receive(self, text: str | bytes, now: float) -> Received | None:
        """Process one frame: wake the request that it answers, or send a response.

        Returns:
            What is left to act on; ``None`` for most frames. Never raises: a frame that violates
            the protocol gets an error response where JSON-RPC provides for one.
        """
        self._last_heard = now
        try:
            frame = decode_frame(text)
        except errors.ProtocolError as exc:
            logger.warning("frame of %d bytes refused: %s", len(text), exc)
            self.fail(None, str(exc), code=exc.code)
            return None
        if frame.method is None:
            self._on_response(frame)
            return None
        try:
            return self._on_method(frame)
        except errors.ProtocolError as exc:
            logger.warning("%s refused: %s", frame.method, exc)
            if frame.has_id:
                self.fail(frame.id, str(exc), code=exc.code)
            return None

    def _on_method(self, frame: Frame) -> Received | None:
        result: Any = NULL
        received: Received | None = None
        match frame.method:
            case "kadi.ability.request":
                return read_invocation(frame) if frame.has_id else None
            case "kadi.session.ping" | "kadi.session.heartbeat":
                result = "pong"
            case "kadi.ability.response":
                outcome = read(frame.params, AbilityResponse)
                key = self._calls.key_of(outcome)
                if key is not None:
                    self._conclude(key, outcome.result, error_in(outcome.error))
            case "kadi.ability.cancel":
                received = read(frame.params, CancelParams)
            case "kadi.event.delivery":
                received = read(frame.params, Event)
            case _:
                if frame.has_id:
                    self.fail(
                        frame.id, f"unknown method: {frame.method}", code=errors.METHOD_NOT_FOUND
                    )
                return None
        if frame.has_id:
            self.respond(frame.id, result)
        return received

    def _on_response(self, frame: Frame) -> None:
        key, error, result = own_key(frame.id), error_in(frame.error), frame.result
        if error is None and key in self._calls and not self._extended:
            request_id = acknowledged_request(result)
            if request_id is not None:
                outcome = self._calls.acknowledge(key, request_id)
                if outcome is None:
                    return
                result, error = outcome.result, error_in(outcome.error)
        self._conclude(key, result, error)

    def _conclude(self, key: int, result: Raw, error: errors.RemoteError | None) -> None:
        self._calls.end(key)
        waiter = self._waiters.get(key)
        if waiter is None:
            if error is not None:
                logger.debug("error response without a matching request: code %d", error.code)
        elif error is not None:
            _fail(waiter, error)
        elif not waiter.done():
            waiter.set_result(result)


def warn_of_dropped_networks(registered: Raw) -> None:
    """Log the networks that the broker names in its answer to a registration."""
    try:
        dropped = read(registered, Registered).dropped_networks
    except errors.ProtocolError:
        return
    if isinstance(dropped, list) and dropped:
        logger.warning(
            "the broker did not let this agent join %s; its tools are not visible there",
            ", ".join(map(str, dropped)),
        )


def _fail(waiter: asyncio.Future[Raw], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # marks it as retrieved: the waiting task may be ending already
