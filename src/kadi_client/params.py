"""Lenient readers for the ``params`` and ``result`` of KADI's methods.

Where the protocol leaves the interpretation open, this module decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kadi_client.context import ON_BEHALF_OF, usable_id
from kadi_client.errors import INVALID_PARAMS, NoProvider, ProtocolError, ProviderLost, RemoteError
from kadi_client.messages import ABSENT, Frame, Raw, decode, error_text, present
from kadi_client.tools import UNKNOWN, Origin, Tool

DEFAULT_BEAT_SECONDS = 30.0
SHORTEST_BEAT_SECONDS = 0.1
MILLISECONDS_FROM = 1000
"""The unit of ``heartbeatInterval`` is not documented: values from here on are milliseconds."""


class Hello(msgspec.Struct, rename="camel"):
    """Result of ``kadi.session.hello``."""

    nonce: str
    heartbeat_interval: Any = None
    direct_replies: Any = None
    """``True`` if the broker can answer a call directly, without acknowledging it first."""


class Authenticated(msgspec.Struct, rename="camel"):
    """Result of ``kadi.session.authenticate``."""

    agent_id: str | None = None


class AbilityRequest(msgspec.Struct, rename="camel"):
    """Params of ``kadi.ability.request``, or of ``invoke`` for a loaded ability."""

    tool_name: str | None = None
    name: str | None = None
    tool_input: Raw = ABSENT
    arguments: Raw = ABSENT
    request_id: str | int | None = None
    timeout: Any = None
    meta: Any = msgspec.field(default=None, name="_meta")


class Registered(msgspec.Struct, rename="camel"):
    """Result of ``kadi.agent.register``."""

    dropped_networks: Any = None


class AbilityResponse(msgspec.Struct, rename="camel"):
    """Params of ``kadi.ability.response``."""

    request_id: str | int
    result: Raw = ABSENT
    error: Raw = ABSENT


CALLER_LOST = "caller_lost"
"""Reason of a cancellation: the caller has disconnected and no longer waits."""


class CancelParams(msgspec.Struct, rename="camel"):
    """Params of ``kadi.ability.cancel``."""

    request_id: str | int
    reason: str | None = None


class _Acknowledgement(msgspec.Struct, rename="camel"):
    request_id: str | int | None = None
    status: str | None = None


T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class Invocation(msgspec.Struct, frozen=True):
    """A call to a tool served here. ``input`` is raw JSON, ``timeout`` is in seconds."""

    id: Raw
    request_id: str
    tool: str
    input: Raw
    timeout: float | None
    origin: Origin = UNKNOWN
    context: Mapping[str, Any] = {}
    """Call id and trace of the call, see :mod:`kadi_client.context`."""


def read(raw: Raw, kind: type[T]) -> T:
    """Decode a raw member as ``kind``; an absent one, or ``null``, counts as an empty object.

    Raises:
        ProtocolError: with code -32602, naming the field, if the value does not fit.
    """
    try:
        decoder = _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))
        value: T = decoder.decode(raw if present(raw) else b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise ProtocolError(f"invalid params: {exc}", code=INVALID_PARAMS) from exc
    return value


def read_invocation(frame: Frame) -> Invocation:
    """Read an incoming ``kadi.ability.request``.

    Without a ``requestId``, the text of the JSON-RPC id is used instead.

    Raises:
        ProtocolError: with code -32602 if no tool is named or a field has the wrong type.
    """
    params = read(frame.params, AbilityRequest)
    tool = params.tool_name or params.name
    if not tool:
        raise ProtocolError("invalid params: toolName is missing", code=INVALID_PARAMS)
    request_id = params.request_id
    if request_id is None:
        request_id = bytes(frame.id).decode("utf-8", "replace").strip('"')
    return Invocation(
        id=frame.id,
        request_id=str(request_id),
        tool=tool,
        input=params.tool_input if len(params.tool_input) else params.arguments,
        timeout=_positive(params.timeout, scale=0.001),
        origin=_origin(params.meta),
        context=params.meta if isinstance(params.meta, dict) else {},
    )


def _origin(meta: Any) -> Origin:
    """Read the origin of a call from ``_meta``; malformed members count as absent."""
    if not isinstance(meta, dict):
        return UNKNOWN
    agent = meta.get("kadi_caller")
    agent = agent if isinstance(agent, dict) else {}
    return Origin(
        protocol=_text(meta.get("callerProtocol")) or UNKNOWN.protocol,
        session_id=_text(agent.get("sessionId")),
        public_key=_text(agent.get("publicKey")),
        network=_text(meta.get("network")),
        on_behalf_of=usable_id(meta.get(ON_BEHALF_OF)),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def acknowledged_request(result: Raw) -> str | None:
    """Return the request id of ``{status: "pending", requestId}``; ``None`` for a final result.

    A result with a ``requestId`` and another status counts as final.
    """
    try:
        ack = read(result, _Acknowledgement)
    except ProtocolError:
        return None
    if ack.request_id is None or ack.status not in (None, "pending"):
        return None
    return str(ack.request_id)


def seconds_between_beats(interval: Any) -> float:
    """Convert a ``heartbeatInterval`` to seconds; not a positive number gives the default."""
    value = _positive(interval)
    if value is None:
        return DEFAULT_BEAT_SECONDS
    return max(SHORTEST_BEAT_SECONDS, value / 1000 if value >= MILLISECONDS_FROM else value)


def _positive(value: Any, *, scale: float = 1.0) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    scaled = value * scale
    return scaled if scaled > 0 and math.isfinite(scaled) else None


def describe(tool: Tool) -> dict[str, Any]:
    """Return the descriptor of a tool for registration and listings."""
    descriptor = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
    }
    if tool.output_schema is not None:
        descriptor["outputSchema"] = tool.output_schema
    if tool.networks is not None:
        descriptor["networks"] = list(tool.networks)
    return descriptor


def own_key(id_: Raw) -> int:
    """Return the key in the id of a response, or -1 if there is none.

    Some peers turn numeric ids into strings.
    """
    try:
        return int(bytes(id_).strip(b'"'))
    except ValueError:
        return -1


def error_in(raw: Raw) -> RemoteError | None:
    """Return the error a peer sent; ``None`` if it is absent or null."""
    if not present(raw):
        return None
    try:
        code, text = error_text(decode(raw))
    except ProtocolError:
        return RemoteError("the peer sent an error that is not valid JSON")
    # Brokers have no codes for these.
    if text.endswith("disconnected before answering"):
        return ProviderLost(text, code=code)
    kind = NoProvider if text.startswith("no provider") else RemoteError
    return kind(text, code=code)
