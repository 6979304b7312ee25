"""Callbacks for the activity of the models."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Callbacks in the event loop; they must not block. ``model`` is the primary name."""

    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        """Record the end of a request; ``code`` is ``ok`` or the error code."""

    def ran(self, model: str, *, texts: int) -> None:
        """Record one run of a local model over a batch of texts."""


class _Nobody:
    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        pass

    def ran(self, model: str, *, texts: int) -> None:
        pass


NOBODY: Observer = _Nobody()
"""An observer that does nothing."""
