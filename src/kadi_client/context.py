"""The context of the current call: its caller, an id and a trace that follow it across processes.

The context applies to the task that handles the call and to all tasks and threads that it starts.
Every call made from them carries it in ``_meta``, next to the input; a broker that does not know
the members drops them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kadi_client.errors import ProtocolError
from kadi_client.messages import Raw, decode
from kadi_client.tools import ROUTING_KEY
from kadi_client.tracing import TRACEPARENT, traceparent

CALL_ID = "callId"
ON_BEHALF_OF = "onBehalfOf"
TRACESTATE = "tracestate"
REQUEST_ID = "X-Request-Id"
_HEADERS = {CALL_ID: REQUEST_ID, TRACEPARENT: TRACEPARENT, TRACESTATE: TRACESTATE}

LOG_FIELD = "kadi_call"
"""Attribute of a log record with its call id, for code that works for several calls."""

_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")
_ID_BYTES = 8
_INCIDENT_BYTES = 6
_UNIQUE_CHARS = 8
"""Minimum length of a usable request id; shorter ones, as of JSON-RPC, are not unique."""


@dataclass(frozen=True, slots=True)
class Context:
    """The id of a call, its caller and, if the caller sent it, the parent of its trace."""

    call: str
    traceparent: str | None = None
    tracestate: str | None = None
    """Vendor data of the trace (W3C ``tracestate``), passed on unchanged."""
    caller: str | None = None
    """Id of the calling agent, if the broker named it; on whose behalf further calls are made."""


_current: ContextVar[Context | None] = ContextVar("kadi_call", default=None)


def call_id() -> str | None:
    """Return the id of the current call; ``None`` outside a call."""
    context = _current.get()
    return None if context is None else context.call


def caller() -> str | None:
    """Return the id of the agent whose call is handled; ``None`` if it is not known."""
    context = _current.get()
    return None if context is None else context.caller


def incident() -> str:
    """Return an id for an unexpected failure, to show to the caller and to find in the log."""
    name, call = secrets.token_hex(_INCIDENT_BYTES), call_id()
    return name if call is None else f"{name} of call {call}"


def usable_id(value: Any, form: re.Pattern[str] = _ID) -> str | None:
    """Return a received call id; ``None`` if it is not 1 to 64 letters, digits or ``._:-``."""
    return value if isinstance(value, str) and form.fullmatch(value) else None


@contextmanager
def handling(
    members: Mapping[str, Any], *, otherwise: str = "", caller: str | None = None
) -> Iterator[Context]:
    """Set the context of a received call for the block.

    Args:
        members: Members of the call's ``_meta`` or ``_kadi``; invalid ones are ignored.
        otherwise: Call id if none was sent; one too short to be unique is replaced by a new id.
        caller: Id of the calling agent, as far as it is known.
    """
    id_ = usable_id(members.get(CALL_ID))
    if id_ is None and len(otherwise) >= _UNIQUE_CHARS:
        id_ = usable_id(otherwise)
    parent = usable_id(members.get(TRACEPARENT), _TRACEPARENT)
    state = usable_id(members.get(TRACESTATE), _TRACESTATE) if parent else None
    context = Context(id_ or secrets.token_hex(_ID_BYTES), parent, state, caller)
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


@contextmanager
def calling(tool_input: Any) -> Iterator[Context]:
    """Set the context for an outgoing call in the block: the current one, or else a new one.

    Args:
        tool_input: Input of the call; its routing hints may contain the id for a new context.
    """
    context = _current.get()
    if context is not None:
        yield context
        return
    hints = tool_input.get(ROUTING_KEY) if isinstance(tool_input, Mapping) else None
    if isinstance(hints, Raw):
        try:
            hints = decode(hints)
        except ProtocolError:
            hints = None
    with handling(hints if isinstance(hints, dict) else {}) as context:
        yield context


def current() -> dict[str, str]:
    """Return the current context as members of ``_meta``; empty outside a call."""
    context = _current.get()
    members = {} if context is None else {CALL_ID: context.call}
    parent = traceparent() or (context and context.traceparent)
    if parent:
        members[TRACEPARENT] = parent
    if context and context.tracestate:
        members[TRACESTATE] = context.tracestate
    if context and context.caller:
        members[ON_BEHALF_OF] = context.caller
    return members


def headers() -> dict[str, str]:
    """Return the current context, without the caller, as headers of an HTTP request."""
    members = current()
    return {header: members[name] for name, header in _HEADERS.items() if name in members}


def from_headers(headers: Mapping[str, str]) -> dict[str, str | None]:
    """Read the context from the headers of an HTTP request, for :func:`handling`."""
    return {name: headers.get(header) for name, header in _HEADERS.items()}
