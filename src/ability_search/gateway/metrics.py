"""What the gateway counts, as Prometheus reads it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0)
"""Upper bounds in seconds: from a keyword query to the indexing of a large batch."""

MEDIA_TYPE = "text/plain"
CONTENT_TYPE = f"{MEDIA_TYPE}; version=0.0.4; charset=utf-8"


class Metrics:
    """The numbers of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "ability_search_gateway_tool_calls",
            "Calls of tools that ended, by tool and by code: ok, or that of the failure.",
            ("tool", "code"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "ability_search_gateway_tool_call_seconds",
            "How long calls of tools took.",
            ("tool",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._responses = Counter(
            "ability_search_gateway_responses",
            "Responses, by status.",
            ("status",),
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "ability_search_gateway_requests_in_flight",
            "Requests in progress.",
            registry=self.registry,
        )
        self.streams = Gauge(
            "ability_search_gateway_streams_open",
            "Event streams that are open.",
            registry=self.registry,
        )
        self.rate_limited = Counter(
            "ability_search_gateway_rate_limited",
            "Requests refused because their address sent too many.",
            registry=self.registry,
        )

    def called(self, tool: str, code: str, seconds: float) -> None:
        """Count a call of a tool."""
        self._calls.labels(tool, code).inc()
        self._seconds.labels(tool).observe(seconds)

    def responded(self, status: int) -> None:
        """Count a response."""
        self._responses.labels(str(status)).inc()

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)
