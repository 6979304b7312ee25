"""The client's half of a KADI session, without I/O.

Pass what the broker sent to :meth:`Session.receive`, act on the event it returns, and send the
frames from :meth:`Session.next_to_send` in that order. ``now`` is the time in seconds of any
monotonic clock, always the same one.
"""

from __future__ import annotations

import enum
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kadi_client.correlation import OpenCalls
from kadi_client.errors import (
    METHOD_NOT_FOUND,
    SERVER_ERROR,
    AuthenticationError,
    FrameTooLarge,
    KadiError,
    ProtocolError,
    RemoteError,
)
from kadi_client.identity import Identity
from kadi_client.messages import (
    NULL,
    Frame,
    Raw,
    decode_frame,
    error_response,
    request,
    response,
    short_text,
)
from kadi_client.params import (
    AbilityResponse,
    Authenticated,
    CancelParams,
    DeliveryParams,
    Hello,
    Registered,
    acknowledged_request,
    cancellation,
    describe,
    error_in,
    own_key,
    read,
    read_invocation,
    seconds_between_beats,
)
from kadi_client.session_events import (
    Answered,
    CancelRequested,
    Delivered,
    Failed,
    Ready,
    Refused,
    SessionEvent,
)
from kadi_client.tools import REQUIRE_AGENT, Tool, with_hints

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
BEATS_UNTIL_DEAD = 3


class Phase(enum.Enum):
    """The progress of the handshake."""

    NEW = enum.auto()
    HANDSHAKE = enum.auto()
    READY = enum.auto()
    REFUSED = enum.auto()


_OnAnswer = Callable[[int, Raw, RemoteError | None, float], SessionEvent | None]


class Session:
    """One session with a broker: handshake, correlation, liveness.

    The size of a frame is checked before it is queued: a frame over ``max_message_bytes`` raises
    :class:`FrameTooLarge` and changes nothing.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        role: str = "agent",
        name: str | None = None,
        version: str | None = None,
        networks: Sequence[str] = ("global",),
        tools: Sequence[Tool] = (),
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._role = role
        self._name = name
        self._version = version
        self._networks = list(networks)
        self._tools = tuple(tools)
        self._max_message_bytes = max_message_bytes
        self._outgoing: deque[bytes] = deque()
        self._last_key = 0
        self._pending: dict[int, _OnAnswer] = {}
        self._calls = OpenCalls(max_bytes=max_message_bytes)
        self._extended = False
        # Request ids are UUIDs, random except for the last group, which is a counter.
        self._request_prefix = str(uuid.uuid4())[:24]
        self._wall_clock = wall_clock
        self._beat_interval = seconds_between_beats(None)
        self._last_heard = 0.0
        self.phase = Phase.NEW
        self.agent_id = identity.agent_id
        """The agent id assigned by the broker; before authentication, the expected one."""
        self.next_beat = float("inf")
        """Time of the next call of :meth:`tick`, on the clock of ``now``."""

    # Outgoing

    def next_to_send(self) -> bytes | None:
        """Remove and return the next frame to send; ``None`` if there is none."""
        return self._outgoing.popleft() if self._outgoing else None

    @property
    def has_output(self) -> bool:
        """True if :meth:`next_to_send` would return a frame."""
        return bool(self._outgoing)

    def start(self) -> None:
        """Begin the handshake, which ends with a :class:`Ready` or :class:`Refused` event."""
        self.phase = Phase.HANDSHAKE
        params: dict[str, Any] = {"role": self._role, "networks": self._networks}
        if self._name:
            params["name"] = self._name
        if self._version:
            params["version"] = self._version
        self._request("kadi.session.hello", params, self._on_hello)

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
            The key of the :class:`Answered` or :class:`Failed` event to come.

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
        on_answer = self._on_acknowledged
        if self._extended:
            params["directReply"] = True
            on_answer = self._on_direct_reply
            if context:
                params["_meta"] = context
        key = self._request("kadi.ability.request", params, on_answer)
        self._calls.start(key, request_id)
        return key

    def request(self, method: str, params: Any) -> int:
        """Call a method of the broker itself; returns and raises as :meth:`invoke` does."""
        return self._request(method, params, self._on_answer)

    def post(self, method: str, params: Any) -> None:
        """Call a method of the broker and ignore its answer."""
        self._last_key += 1
        self._send(request(self._last_key, method, params))

    def register(self, tools: Sequence[Tool]) -> int:
        """Replace the tools of this session; returns a key as :meth:`request` does."""
        key = self.request("kadi.agent.register", self._registration(tools))
        self._pending[key] = self._on_registered_again
        return key

    def publish(self, channel: str, data: Any, network: str | None) -> list[int]:
        """Publish an event on one network, or on all networks of this agent.

        A broker without our extensions publishes on one network at a time.

        Returns:
            The keys of the requests, one or more; raises as :meth:`invoke` does.
        """
        params = {"channel": channel, "data": data}
        if network is None and self._extended:
            return [self.request("kadi.event.publish", params)]
        networks = self._networks if network is None else [network]
        return [
            self.request("kadi.event.publish", {**params, "networkId": each}) for each in networks
        ]

    def abandon(self, key: int) -> None:
        """Forget a request and drop its answer; ignore an unknown key.

        Abandoning an invocation cancels it at the broker.
        """
        self._pending.pop(key, None)
        request_id = self._calls.end(key)
        if request_id is not None:
            self._send(cancellation(request_id))

    def respond(self, id_: Raw, result: Any) -> None:
        """Answer an invocation.

        Raises:
            FrameTooLarge: if the result is too large to send.
            TypeError, ValueError, OverflowError, RecursionError: if it is not JSON.
        """
        self._send(response(id_, result))

    def fail(self, id_: Raw | None, message: str, *, code: int = SERVER_ERROR) -> None:
        """Answer a request with an error; an overlong text is truncated."""
        try:
            self._send(error_response(id_, short_text(message), code=code))
        except FrameTooLarge as exc:
            logger.warning("error response of %d bytes dropped", exc.size)

    def goodbye(self) -> None:
        """Announce an orderly close."""
        self.post("kadi.session.goodbye", {})

    def tick(self, now: float) -> bool:
        """Queue a heartbeat when one is due.

        Returns:
            False if the broker has been silent for too long and counts as dead.
        """
        if now - self._last_heard > self._beat_interval * BEATS_UNTIL_DEAD:
            return False
        if now >= self.next_beat:
            self.post("kadi.session.heartbeat", {"timestamp": round(self._wall_clock() * 1000)})
            self.next_beat = now + self._beat_interval
        return True

    def _registration(self, tools: Sequence[Tool]) -> dict[str, Any]:
        params: dict[str, Any] = {
            "tools": [describe(tool) for tool in tools],
            "networks": self._networks,
        }
        if self._name:
            params["displayName"] = self._name
        return params

    def _request(self, method: str, params: Any, on_answer: _OnAnswer) -> int:
        key = self._last_key + 1
        self._send(request(key, method, params))
        self._last_key = key
        self._pending[key] = on_answer
        return key

    def _send(self, frame: bytes) -> None:
        if len(frame) > self._max_message_bytes:
            raise FrameTooLarge(len(frame), self._max_message_bytes)
        self._outgoing.append(frame)

    # Incoming

    def receive(self, text: str | bytes, now: float) -> SessionEvent | None:
        """Process one frame; this may queue responses to send.

        Returns:
            The event to act on; ``None`` for most frames. Never raises: a frame that violates the
            protocol gets an error response where JSON-RPC provides for one.
        """
        self._last_heard = now
        try:
            frame = decode_frame(text)
        except ProtocolError as exc:
            logger.warning("frame of %d bytes refused: %s", len(text), exc)
            self.fail(None, str(exc), code=exc.code)
            return None
        if frame.is_response:
            return self._on_response(frame, now)
        try:
            return self._on_method(frame, now)
        except ProtocolError as exc:
            logger.warning("%s refused: %s", frame.method, exc)
            if frame.has_id:
                self.fail(frame.id, str(exc), code=exc.code)
            return None

    def _on_method(self, frame: Frame, now: float) -> SessionEvent | None:
        match frame.method:
            case "kadi.ability.request":
                return read_invocation(frame) if frame.has_id else None
            case "kadi.session.ping" | "kadi.session.heartbeat":
                return self._confirm(frame, "pong", None)
            case "kadi.ability.response":
                outcome = read(frame.params, AbilityResponse)
                return self._confirm(frame, NULL, self._on_outcome(outcome, now))
            case "kadi.ability.cancel":
                cancel = read(frame.params, CancelParams)
                request = CancelRequested(str(cancel.request_id), cancel.caller_lost)
                return self._confirm(frame, NULL, request)
            case "kadi.event.delivery":
                event = read(frame.params, DeliveryParams)
                return self._confirm(
                    frame,
                    NULL,
                    Delivered(
                        event.channel, event.data, event.network_id, event.timestamp, event.source
                    ),
                )
            case _:
                if frame.has_id:
                    text = f"unknown method: {frame.method}"
                    self.fail(frame.id, text, code=METHOD_NOT_FOUND)
                return None

    def _confirm(
        self, frame: Frame, result: Any, event: SessionEvent | None
    ) -> SessionEvent | None:
        if frame.has_id:
            self.respond(frame.id, result)
        return event

    def _on_response(self, frame: Frame, now: float) -> SessionEvent | None:
        key = own_key(frame.id)
        on_answer = self._pending.pop(key, None)
        if on_answer is None:
            error = error_in(frame.error)
            if error is not None:
                logger.debug("error response without a matching request: code %d", error.code)
            return None
        return on_answer(key, frame.result, error_in(frame.error), now)

    def _on_answer(
        self, key: int, result: Raw, error: RemoteError | None, _now: float
    ) -> SessionEvent:
        return Failed(key, error) if error else Answered(key, result)

    def _on_direct_reply(
        self, key: int, result: Raw, error: RemoteError | None, now: float
    ) -> SessionEvent:
        self._calls.end(key)
        return self._on_answer(key, result, error, now)

    def _on_acknowledged(
        self, key: int, result: Raw, error: RemoteError | None, now: float
    ) -> SessionEvent | None:
        request_id = None if error else acknowledged_request(result)
        if request_id is None:
            self._calls.end(key)
            return self._on_answer(key, result, error, now)
        outcome = self._calls.acknowledge(key, request_id, now)
        if outcome is None:
            return None
        return self._on_answer(key, outcome.result, error_in(outcome.error), now)

    def _on_outcome(self, outcome: AbilityResponse, now: float) -> SessionEvent | None:
        key = self._calls.conclude(outcome, now)
        if key is None:
            return None
        self._pending.pop(key, None)
        return self._on_answer(key, outcome.result, error_in(outcome.error), now)

    # Handshake

    def _on_hello(
        self, _key: int, result: Raw, error: RemoteError | None, _now: float
    ) -> SessionEvent | None:
        if error:
            return self._refuse(error)
        try:
            hello = read(result, Hello)
        except ProtocolError as exc:
            return self._refuse(exc)
        self._beat_interval = seconds_between_beats(hello.heartbeat_interval)
        self._extended = hello.answers_directly
        params = {
            "publicKey": self._identity.public_key,
            "signature": self._identity.sign(hello.nonce),
            "nonce": hello.nonce,
        }
        self._request("kadi.session.authenticate", params, self._on_authenticated)
        return None

    def _on_authenticated(
        self, _key: int, result: Raw, error: RemoteError | None, now: float
    ) -> SessionEvent | None:
        if error:
            return self._refuse(AuthenticationError(str(error)))
        try:
            self.agent_id = read(result, Authenticated).agent_id or self.agent_id
        except ProtocolError as exc:
            return self._refuse(exc)
        try:
            registration = self._registration(self._tools)
            self._request("kadi.agent.register", registration, self._on_registered)
        except FrameTooLarge as exc:
            return self._refuse(exc)
        return None

    def _on_registered(
        self, _key: int, result: Raw, error: RemoteError | None, now: float
    ) -> SessionEvent:
        if error and self._tools:
            return self._refuse(error)
        if error:
            logger.warning("the broker refused a registration without tools; continuing without")
        else:
            _warn_of_dropped_networks(result)
        return self._ready(now)

    def _on_registered_again(
        self, key: int, result: Raw, error: RemoteError | None, now: float
    ) -> SessionEvent:
        if not error:
            _warn_of_dropped_networks(result)
        return self._on_answer(key, result, error, now)

    def _ready(self, now: float) -> Ready:
        self.phase = Phase.READY
        self.next_beat = now + self._beat_interval
        return Ready(self.agent_id)

    def _refuse(self, error: KadiError) -> Refused:
        self.phase = Phase.REFUSED
        return Refused(error)


def _warn_of_dropped_networks(registered: Raw) -> None:
    try:
        dropped = read(registered, Registered).dropped_networks
    except ProtocolError:
        return
    if isinstance(dropped, list) and dropped:
        logger.warning(
            "the broker did not let this agent join %s; its tools are not visible there",
            ", ".join(map(str, dropped)),
        )
