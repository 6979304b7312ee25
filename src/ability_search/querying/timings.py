"""Timings of the steps of a query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kadi_client.tracing import span


class Timings:
    """A stopwatch for the steps of a query."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block as (part of) step ``name``."""
        started = time.perf_counter()
        try:
            with span(name):
                yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add a time measured elsewhere to step ``name``."""
        self.milliseconds[name] = self.milliseconds.get(name, 0.0) + seconds * 1e3

    def finished(self) -> dict[str, float]:
        """Return all timings, with the ``total`` since the start."""
        return {**self.milliseconds, "total": (time.perf_counter() - self._started) * 1e3}
