"""Spans: what a part does for a call, told to whoever collects it. Nobody does unless asked to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol

Kind = Literal["internal", "server", "client"]
"""Work of one's own, work for a caller elsewhere, or a wait for somebody else's work."""

Value = str | int | float | bool

RPC: Mapping[str, Value] = {"rpc.system": "kadi"}
"""What is noted of the spans of calls, on either side."""


class Span(Protocol):
    """A piece of work that is going on."""

    def note(self, name: str, value: Value) -> None:
        """Say something about it."""

    def fail(self, reason: str) -> None:
        """It came to nothing: a code, never the words of an error."""


class Tracer(Protocol):
    """Whoever collects spans. Must not raise, and must not wait."""

    def span(
        self, name: str, kind: Kind, notes: Mapping[str, Value], parent: str | None
    ) -> AbstractContextManager[Span]:
        """A span for a block of code; it fails with what the block raises.

        Its parent is the one around it, or the one that a ``traceparent`` (W3C) from elsewhere
        names.
        """

    def traceparent(self) -> str | None:
        """The span around the code at hand, for others to go on from; ``None`` if there is none."""


class _Untraced:
    """The span that nobody collects."""

    def __enter__(self) -> _Untraced:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, name: str, value: Value) -> None:
        """Nothing is kept."""

    def fail(self, reason: str) -> None:
        """Nothing is kept."""


_UNTRACED = _Untraced()
_NOTHING: Mapping[str, Value] = {}
_tracer: Tracer | None = None


def use(tracer: Tracer | None) -> None:
    """From now on tell this one of the spans of the process, or nobody."""
    global _tracer
    _tracer = tracer


def span(
    name: str,
    kind: Kind = "internal",
    notes: Mapping[str, Value] = _NOTHING,
    *,
    parent: str | None = None,
) -> AbstractContextManager[Span]:
    """A span for a block of code, see :meth:`Tracer.span`."""
    if _tracer is None:
        return _UNTRACED
    return _tracer.span(name, kind, notes, parent)


def traceparent() -> str | None:
    """See :meth:`Tracer.traceparent`."""
    return None if _tracer is None else _tracer.traceparent()
