"""Lenient parameter models of all methods: unknown members are ignored, ``null`` is absent."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from kadi_client.errors import INVALID_PARAMS
from kadi_client.messages import ABSENT, Raw, encode, present
from kadi_client.params import read
from kadi_client.tools import ROUTING_KEY
from kadi_localnet.broker.session import Refused

T = TypeVar("T")

_ROUTING_KEY = b'"%s"' % ROUTING_KEY.encode()
_FIRST_MEMBER = re.compile(rb"\{\s*%s\s*:\s*" % _ROUTING_KEY)
_LAST_MEMBER = re.compile(rb",\s*%s\s*:\s*\Z" % _ROUTING_KEY)
_ANYWHERE_BYTES = 64 * 1024
"""Size up to which an input may have its hints between other members, all of which are read then.
KADI's clients write them first or last."""
_EMPTY_OBJECT = Raw(b"{}")
TRUE = Raw(b"true")


class Hello(msgspec.Struct):
    """``kadi.session.hello``."""

    name: str | None = None
    networks: list[str] | None = None


class Authenticate(msgspec.Struct, rename="camel"):
    """``kadi.session.authenticate``."""

    public_key: str
    signature: str
    nonce: str | None = None


class ToolEntry(msgspec.Struct, rename="camel"):
    """A tool as registered by its provider; what is only passed on is not decoded."""

    name: str
    description: Raw = ABSENT
    input_schema: Raw = ABSENT
    output_schema: Raw = ABSENT
    tags: Raw = ABSENT
    networks: tuple[str, ...] | None = None


class Register(msgspec.Struct, rename="camel"):
    """``kadi.agent.register``."""

    tools: list[ToolEntry] | None = None
    networks: list[str] | None = None
    display_name: str | None = None


class CallContext(msgspec.Struct, rename="camel"):
    """The members that follow a call across agents, see :mod:`kadi_client.context`."""

    call_id: Raw = ABSENT
    traceparent: Raw = msgspec.field(default=ABSENT, name="traceparent")
    tracestate: Raw = msgspec.field(default=ABSENT, name="tracestate")
    on_behalf_of: Raw = ABSENT


class Hints(CallContext, rename="camel"):
    """``_kadi`` inside a tool's input."""

    require_provider: str | None = None
    require_agent: str | None = None


class AbilityRequest(msgspec.Struct, rename="camel"):
    """``kadi.ability.request``; ``timeout`` is in milliseconds."""

    tool_name: str | None = None
    name: str | None = None
    tool_input: Raw = ABSENT
    arguments: Raw = ABSENT
    request_id: str | int | None = None
    target_agent: str | None = None
    timeout: float | None = None
    direct_reply: Raw = ABSENT
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")

    @property
    def payload(self) -> int:
        """Size of the members that may be large, in bytes."""
        return len(self.tool_input) + len(self.arguments)

    @property
    def own_request_id(self) -> str | int | None:
        """The request id chosen by the caller; ``None`` if there is none."""
        return None if self.request_id == "" else self.request_id

    @property
    def tool(self) -> str:
        """The tool's name, from ``toolName`` or else ``name``.

        Raises:
            Refused: if both are missing.
        """
        tool = self.tool_name or self.name
        if not tool:
            raise invalid("toolName", "is missing: name the tool to call")
        return tool

    @property
    def input(self) -> Raw:
        """The tool's input as raw JSON; ``{}`` if there is none.

        Raises:
            Refused: if it is not an object.
        """
        raw = self.tool_input if present(self.tool_input) else self.arguments
        if not present(raw):
            return _EMPTY_OBJECT
        if memoryview(raw)[:1].tobytes() != b"{":
            raise invalid("toolInput", "must be an object")
        return raw


class Cancel(msgspec.Struct, rename="camel"):
    """``kadi.ability.cancel``; a direct call is identified by the ``id`` of its request."""

    request_id: str | int | None = None
    id: Raw = ABSENT


class Discovery(msgspec.Struct, rename="camel"):
    """``kadi.ability.list`` and ``kadi.discover``."""

    tool: str | None = None
    networks: list[str] | None = None
    include_providers: bool | None = None


class Subscription(msgspec.Struct, rename="camel"):
    """``kadi.event.subscribe`` and ``kadi.event.unsubscribe``."""

    pattern: str | None = None
    channels: list[str] | None = None
    network_id: str | None = None


class Publication(msgspec.Struct, rename="camel"):
    """``kadi.event.publish``."""

    channel: str
    data: Raw = Raw(b"null")
    network_id: str | None = None

    @property
    def payload(self) -> int:
        """As of :class:`AbilityRequest`."""
        return len(self.data)


def read_within(most: int, kind: type[T], params: Raw) -> T:
    """Decode the parameters of a method, which have at most ``most`` bytes besides the payload.

    Only parameters with a payload are decoded before they are measured; they hold nothing whose
    decoding would take longer than reading over it.

    Raises:
        ProtocolError: naming the invalid member, or if they are too large.
    """
    size = len(params)
    result = read(params, kind) if kind in (AbilityRequest, Publication) else None
    if isinstance(result, AbilityRequest | Publication):
        size -= result.payload
    if size > most:
        text = f"invalid params: {size} bytes besides a payload, more than the {most} allowed"
        raise Refused(text, code=INVALID_PARAMS)
    return read(params, kind) if result is None else result


class _Hinted(msgspec.Struct):
    hints: Raw = msgspec.field(default=ABSENT, name=ROUTING_KEY)


def take_hints(tool_input: Raw) -> tuple[Raw, Hints]:
    """Split a tool's input into the input without ``_kadi`` and the hints in ``_kadi``.

    The input may be large and mostly has no hints, so it is searched for the key before it is
    parsed, and the members of a large one are not taken apart. Hints that are not an object count
    as none.

    Raises:
        Refused: if a hint for the broker has the wrong type, or hints are in the midst of a large
            input.
    """
    if _ROUTING_KEY not in bytes(tool_input):
        return tool_input, Hints()
    if len(tool_input) <= _ANYWHERE_BYTES:
        members = read(tool_input, dict[str, Raw])
        hints = members.pop(ROUTING_KEY, ABSENT)
        return (Raw(encode(members)) if len(hints) else tool_input), _object(Hints, hints)
    hints = read(tool_input, _Hinted).hints
    if not len(hints):
        return tool_input, Hints()
    rest = _without(hints, bytes(tool_input))
    if rest is None or len(read(rest, _Hinted).hints):
        raise invalid(
            f"toolInput.{ROUTING_KEY}",
            f"must be the first or the last member of an input of more than {_ANYWHERE_BYTES}"
            " bytes, and the only one of this name",
        )
    return rest, _object(Hints, hints)


def _without(hints: Raw, tool_input: bytes) -> Raw | None:
    """Return an object without its hints; ``None`` if they are neither first nor last."""
    value = bytes(hints)
    first = _FIRST_MEMBER.match(tool_input)
    if first and tool_input.startswith(value, first.end()):
        rest = tool_input[first.end() + len(value) :].lstrip()
        return Raw(b"{" + rest.removeprefix(b","))
    until = tool_input[:-1].rstrip()
    begin = len(until) - len(value)
    last = _LAST_MEMBER.search(until, max(0, begin - _ANYWHERE_BYTES), begin)
    if last and until.endswith(value):
        return Raw(until[: last.start()] + b"}")
    return None


def call_context(meta: Raw, hints: Hints) -> dict[str, Raw]:
    """Return the members of ``_meta`` that follow a call; ``_meta`` overrides ``_kadi``."""
    own = _object(CallContext, meta)
    found = {
        "callId": own.call_id if present(own.call_id) else hints.call_id,
        "traceparent": own.traceparent if present(own.traceparent) else hints.traceparent,
        "tracestate": own.tracestate if present(own.tracestate) else hints.tracestate,
        "onBehalfOf": own.on_behalf_of,
    }
    return {name: value for name, value in found.items() if present(value)}


def _object(kind: type[T], raw: Raw) -> T:
    """Decode a member that is an object; anything else counts as an empty object."""
    if memoryview(raw)[:1].tobytes() != b"{":
        return kind()
    return read(raw, kind)


def invalid(member: str, problem: str) -> Refused:
    """Return the error for a member with an invalid value."""
    return Refused(f"invalid params: {member} {problem}", code=INVALID_PARAMS)
