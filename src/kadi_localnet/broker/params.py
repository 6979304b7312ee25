"""Parameters of every method, read leniently: what is unknown is ignored, ``null`` is absent."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from kadi_client.errors import INVALID_PARAMS
from kadi_client.messages import ABSENT, Raw
from kadi_client.tools import ROUTING_KEY
from kadi_localnet.broker.session import Refused

T = TypeVar("T")

_ROUTING_KEY = re.compile(b'"%s"' % ROUTING_KEY.encode())
_LEADING_HINTS = re.compile(
    rb'\s*\{\s*"%s"\s*:\s*(\{[^{}"\\]*(?:"[^{}"\\]*"[^{}"\\]*)*\})' % ROUTING_KEY.encode()
)
"""Hints that stand first, as our clients send them, with neither objects nor escapes in them."""
_EMPTY_OBJECT = Raw(b"{}")


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
    """A tool as its provider registered it; the schemas are never looked into."""

    name: str
    description: str | None = None
    input_schema: Raw = ABSENT
    output_schema: Raw = ABSENT
    tags: list[str] | None = None


class Register(msgspec.Struct, rename="camel"):
    """``kadi.agent.register``."""

    tools: list[ToolEntry] | None = None
    networks: list[str] | None = None
    display_name: str | None = None


class Hints(msgspec.Struct, rename="camel"):
    """What ``_kadi`` tells the broker."""

    require_provider: str | None = None
    call_id: Raw = ABSENT
    """The id that follows the call from part to part; see :func:`kadi_client.context.usable_id`."""


class AbilityRequest(msgspec.Struct, rename="camel"):
    """``kadi.ability.request``; ``timeout`` is in milliseconds."""

    tool_name: str | None = None
    name: str | None = None
    tool_input: Raw = ABSENT
    arguments: Raw = ABSENT
    target_agent: str | None = None
    timeout: float | None = None
    direct_reply: Any = None

    @property
    def wants_direct_reply(self) -> bool:
        """Whether the answer to the request is to be that of the tool, without ``pending``."""
        return self.direct_reply is True

    @property
    def tool(self) -> str:
        """The tool's name, from whichever member carries it.

        Raises:
            Refused: if none does.
        """
        tool = self.tool_name or self.name
        if not tool:
            raise invalid("toolName", "is missing: name the tool to call")
        return tool

    @property
    def input(self) -> Raw:
        """The tool's input as it came, ``{}`` if there is none.

        Raises:
            Refused: if it is not an object.
        """
        raw = self.tool_input if present(self.tool_input) else self.arguments
        if not present(raw):
            return _EMPTY_OBJECT
        if bytes(memoryview(raw)[:1]) != b"{":
            raise invalid("toolInput", "must be an object")
        return raw


class Cancel(msgspec.Struct, rename="camel"):
    """``kadi.ability.cancel``; a direct call is named by the ``id`` of its request."""

    request_id: str | None = None
    id: Raw = ABSENT


class Discovery(msgspec.Struct, rename="camel"):
    """``kadi.ability.list`` and ``kadi.discover``."""

    tool: str | None = None
    networks: list[str] | None = None
    include_providers: bool | None = None


class Subscription(msgspec.Struct, rename="camel"):
    """``kadi.event.subscribe`` and ``kadi.event.unsubscribe``."""

    channels: list[str]
    network_id: str | None = None


class Publication(msgspec.Struct, rename="camel"):
    """``kadi.event.publish``."""

    channel: str
    data: Raw = Raw(b"null")
    network_id: str | None = None


class _Routed(msgspec.Struct):
    hints: Raw = msgspec.field(default=ABSENT, name=ROUTING_KEY)


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def read(kind: type[T], params: Raw) -> T:
    """Read the parameters of one method.

    Raises:
        Refused: naming the member that is wrong and what was expected of it.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        result: T = decoder.decode(params if present(params) else _EMPTY_OBJECT)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise Refused(f"invalid params: {exc}", code=INVALID_PARAMS) from exc
    return result


def routing_hints(tool_input: Raw) -> Hints:
    """What ``_kadi`` inside a tool's input says; what is not an object says nothing.

    The input is searched for the key before it is parsed: many inputs have none, and may be large.

    Raises:
        Refused: if ``requireProvider`` is of the wrong type.
    """
    leading = _LEADING_HINTS.match(tool_input)
    if leading is not None:
        return read(Hints, Raw(leading[1]))
    if not _ROUTING_KEY.search(tool_input):
        return Hints()
    hints = read(_Routed, tool_input).hints
    if not present(hints) or bytes(memoryview(hints)[:1]) != b"{":
        return Hints()
    return read(Hints, hints)


def present(raw: Raw) -> bool:
    """Whether a member was sent at all and is not ``null``."""
    return bytes(memoryview(raw)[:5]) not in (b"", b"null")


def invalid(member: str, problem: str) -> Refused:
    """The error for a member whose value cannot be used."""
    return Refused(f"invalid params: {member} {problem}", code=INVALID_PARAMS)
