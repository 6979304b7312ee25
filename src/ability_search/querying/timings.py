"""How long the steps of a query take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kadi_client.tracing import span


class Timings:
    """Measures the steps of a query."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block as (a part of) step ``name``."""
        started = time.perf_counter()
        try:
            with span(name):
                yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Count what was measured elsewhere as (a part of) step ``name``."""
        self.milliseconds[name] = self.milliseconds.get(name, 0.0) + seconds * 1e3

    def finished(self) -> dict[str, float]:
        """All of them, with the ``total`` since the beginning."""
        return {**self.milliseconds, "total": (time.perf_counter() - self._started) * 1e3}
