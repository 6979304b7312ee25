"""Where numbers go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ability_search.ops.metrics.metric_table import Metric

Read = Callable[[], Mapping[tuple[str, ...], float]]
"""Gives the values of a metric as they are now, by its labels; cheap, never blocking."""


class Meter(Protocol):
    """Takes the numbers of one process down. Labels are given in the order of the metric's."""

    def add(self, counter: Metric, value: float, *labels: str) -> None:
        """Count ``value`` more."""

    def observe(self, histogram: Metric, value: float, *labels: str) -> None:
        """Note one value, in the metric's unit."""

    def watch(self, metric: Metric, read: Read) -> None:
        """Ask ``read`` whenever the numbers are wanted; a metric may have several."""


class _Unmetered:
    def add(self, counter: Metric, value: float, *labels: str) -> None:
        pass

    def observe(self, histogram: Metric, value: float, *labels: str) -> None:
        pass

    def watch(self, metric: Metric, read: Read) -> None:
        pass


UNMETERED: Meter = _Unmetered()
"""Takes nothing down."""
