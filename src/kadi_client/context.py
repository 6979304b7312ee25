"""The call that the running code works for: an id and a trace that follow it across processes.

They hold for the task that handles the call and for all tasks and threads that it starts. Every
call made meanwhile carries them in ``_meta``, beside its input; a broker that does not know them
drops them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kadi_client import tracing
from kadi_client.errors import ProtocolError
from kadi_client.messages import Raw, decode
from kadi_client.tools import ROUTING_KEY

CALL_ID = "callId"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
REQUEST_ID = "X-Request-Id"
_HEADERS = {CALL_ID: REQUEST_ID, TRACEPARENT: TRACEPARENT, TRACESTATE: TRACESTATE}

LOG_FIELD = "kadi_call"
"""Attribute of a log record that names its call where the code at hand works for several."""

_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")
_ID_BYTES = 8
_INCIDENT_BYTES = 6
_UNIQUE_CHARS = 8
"""A request id that is shorter, as JSON-RPC has them, is one of many alike."""


@dataclass(frozen=True, slots=True)
class Context:
    """A call: its id, and where its trace goes on from, if whoever made it said so."""

    call: str
    traceparent: str | None = None
    tracestate: str | None = None
    """What the tracers of others keep beside that trace; passed on as it came (W3C)."""


_current: ContextVar[Context | None] = ContextVar("kadi_call", default=None)


def call_id() -> str | None:
    """The id of the call that the code at hand works for."""
    context = _current.get()
    return None if context is None else context.call


def incident() -> str:
    """A name for a failure that nobody expected, for the log and for whoever is told of it."""
    name, call = secrets.token_hex(_INCIDENT_BYTES), call_id()
    return name if call is None else f"{name} of call {call}"


def usable_id(value: Any) -> str | None:
    """An id as somebody else sent it; ``None`` if it is not 1 to 64 letters, digits, ``._:-``."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


@contextmanager
def handling(told: Mapping[str, Any], *, otherwise: str = "") -> Iterator[Context]:
    """Work for somebody's call in the block.

    Args:
        told: What came with it in ``_meta`` or ``_kadi``; what cannot be used is left out.
        otherwise: Its id where none came with it, if that is long enough to be the only one;
            else a new one is made.
    """
    id_ = usable_id(told.get(CALL_ID))
    if id_ is None and len(otherwise) >= _UNIQUE_CHARS:
        id_ = usable_id(otherwise)
    parent = told.get(TRACEPARENT)
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        parent = None
    state = told.get(TRACESTATE) if parent else None
    if not isinstance(state, str) or not _TRACESTATE.fullmatch(state):
        state = None
    context = Context(id_ or secrets.token_hex(_ID_BYTES), parent, state)
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


@contextmanager
def calling(tool_input: Any) -> Iterator[Context]:
    """Make a call in the block: as part of the one that the code at hand works for, or a new one.

    Args:
        tool_input: Its input, which may name the id of a new one.
    """
    context = _current.get()
    if context is not None:
        yield context
        return
    with handling(_hints(tool_input)) as context:
        yield context


def current() -> dict[str, str]:
    """Return the context as members of ``_meta``; empty outside a call."""
    context = _current.get()
    told = {} if context is None else {CALL_ID: context.call}
    parent = tracing.traceparent() or (context and context.traceparent)
    if parent:
        told[TRACEPARENT] = parent
    if context and context.tracestate:
        told[TRACESTATE] = context.tracestate
    return told


def headers() -> dict[str, str]:
    """Return the context as headers of an HTTP request."""
    return {_HEADERS[name]: value for name, value in current().items()}


def from_headers(headers: Mapping[str, str]) -> dict[str, str | None]:
    """Read the context from the headers of an HTTP request, for :func:`handling`."""
    return {name: headers.get(header) for name, header in _HEADERS.items()}


def _hints(tool_input: Any) -> dict[str, Any]:
    hints = tool_input.get(ROUTING_KEY) if isinstance(tool_input, Mapping) else None
    if isinstance(hints, Raw):
        try:
            hints = decode(hints)
        except ProtocolError:
            return {}
    return hints if isinstance(hints, dict) else {}
