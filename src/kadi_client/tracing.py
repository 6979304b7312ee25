"""Spans around the work for a call. They are dropped unless a tracer is set with :func:`use`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol

Kind = Literal["internal", "server", "client"]
"""Local work, work for a remote caller, or waiting for a remote callee."""

Value = str | int | float | bool

RPC: Mapping[str, Value] = {"rpc.system": "kadi"}
"""Attributes of the spans of calls, on the client and on the server side."""


class Span(Protocol):
    """A unit of work in progress."""

    def note(self, name: str, value: Value) -> None:
        """Set an attribute."""

    def fail(self, reason: str) -> None:
        """Mark the span as failed; ``reason`` is a code, never the text of an error."""


class Tracer(Protocol):
    """A collector of spans. Its methods must neither raise nor wait."""

    def span(
        self, name: str, kind: Kind, notes: Mapping[str, Value], parent: str | None
    ) -> AbstractContextManager[Span]:
        """Return a span for a block of code; it fails if the block raises.

        Its parent is ``parent``, a W3C ``traceparent`` from another process, or else the
        enclosing span.
        """

    def traceparent(self) -> str | None:
        """Return the current span as a ``traceparent`` to pass on; ``None`` if there is none."""


class _Untraced:
    """A span that is not collected."""

    def __enter__(self) -> _Untraced:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, name: str, value: Value) -> None:
        """Do nothing."""

    def fail(self, reason: str) -> None:
        """Do nothing."""


_UNTRACED = _Untraced()
_NOTHING: Mapping[str, Value] = {}
_tracer: Tracer | None = None


def use(tracer: Tracer | None) -> None:
    """Send the spans of this process to ``tracer`` from now on; ``None`` drops them."""
    global _tracer
    _tracer = tracer


def span(
    name: str,
    kind: Kind = "internal",
    notes: Mapping[str, Value] = _NOTHING,
    *,
    parent: str | None = None,
) -> AbstractContextManager[Span]:
    """Return a span for a block of code, see :meth:`Tracer.span`."""
    if _tracer is None:
        return _UNTRACED
    return _tracer.span(name, kind, notes, parent)


def traceparent() -> str | None:
    """Return the current span as a ``traceparent``, see :meth:`Tracer.traceparent`."""
    return None if _tracer is None else _tracer.traceparent()
