"""The metrics of the gateway."""

from __future__ import annotations

from ability_search.ops.metrics.metric_table import (
    GATEWAY_CALL_SECONDS,
    GATEWAY_CALLS,
    GATEWAY_RATE_LIMITED,
    GATEWAY_RESPONSES,
)
from ability_search.ops.metrics.prometheus_meter import CONTENT_TYPE, MEDIA_TYPE, PrometheusMeter

__all__ = ["CONTENT_TYPE", "MEDIA_TYPE", "Metrics"]


class Metrics:
    """The metrics of one gateway."""

    def __init__(self, meter: PrometheusMeter) -> None:
        self.meter = meter

    def called(self, tool: str, code: str, seconds: float) -> None:
        """Record a tool call."""
        self.meter.add(GATEWAY_CALLS, 1, tool, code)
        self.meter.observe(GATEWAY_CALL_SECONDS, seconds, tool)

    def responded(self, status: int) -> None:
        """Count a response."""
        self.meter.add(GATEWAY_RESPONSES, 1, str(status))

    def rate_limited(self) -> None:
        """Count a request that the rate limit refused."""
        self.meter.add(GATEWAY_RATE_LIMITED, 1)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return self.meter.text()
