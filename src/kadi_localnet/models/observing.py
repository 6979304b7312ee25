"""Who is told what the models do."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Is told in the event loop; must not block. ``model`` is the name it is known by first."""

    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        """A request of so many texts ended; ``code`` is ``ok``, or that of its failure."""

    def ran(self, model: str, *, texts: int) -> None:
        """A local model read so many texts at once."""


class _Nobody:
    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        pass

    def ran(self, model: str, *, texts: int) -> None:
        pass


NOBODY: Observer = _Nobody()
"""Wants to know nothing."""
