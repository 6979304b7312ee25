"""The port for recording metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ability_search.ops.metrics.metric_table import Metric

Read = Callable[[], Mapping[tuple[str, ...], float]]
"""Returns the current values of a metric by label values; fast, without blocking."""


class Meter(Protocol):
    """Records the metrics of one process; label values are in the order of the metric's labels."""

    def add(self, counter: Metric, value: float, *labels: str) -> None:
        """Increase a counter by ``value``."""

    def observe(self, histogram: Metric, value: float, *labels: str) -> None:
        """Record one value, in the metric's unit."""

    def watch(self, metric: Metric, read: Read) -> None:
        """Call ``read`` at each scrape; a metric may have several."""


class _Unmetered:
    def add(self, counter: Metric, value: float, *labels: str) -> None:
        pass

    def observe(self, histogram: Metric, value: float, *labels: str) -> None:
        pass

    def watch(self, metric: Metric, read: Read) -> None:
        pass


UNMETERED: Meter = _Unmetered()
"""A meter that records nothing."""
