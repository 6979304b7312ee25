"""A meter for Prometheus, and its `/metrics`; the only user of its client for recording."""

from __future__ import annotations

from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ability_search.extensions.cli.http_access import (
    Receive,
    Scope,
    Send,
    check_bearer,
    guarded,
    headers_of,
    send_text,
)
from ability_search.extensions.cli.http_server import serve_http
from ability_search.ops.metrics.meter import Read
from ability_search.ops.metrics.metric_table import (
    COMPONENT_INFO,
    COMPONENTS,
    METRICS,
    ComponentName,
    Metric,
)

PATH = "/metrics"
"""Path at which each component serves its metrics."""
MEDIA_TYPE = "text/plain"
CONTENT_TYPE = f"{MEDIA_TYPE}; version=0.0.4; charset=utf-8"

MOST_SERIES = 500
"""Maximum label combinations of a metric; further ones are counted as ``other``."""
OTHER = "other"


class PrometheusMeter:
    """The metrics of a component and of its process, in their own registry.

    Args:
        component: Name of the component.
        version: Version of the software.
    """

    def __init__(self, component: ComponentName, version: str) -> None:
        # They would double the number of series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._instruments: dict[Metric, Any] = {}
        self._children: dict[tuple[Metric, tuple[str, ...]], Any] = {}
        self._series: Multiset[Metric] = Multiset()
        for metric in METRICS:
            if component in metric.components and metric.kind != "gauge":
                self._instrument(metric)
                for label in metric.expected:
                    self._new_child(metric, (label,))
        self._watched = _Watched()
        self._registry.register(self._watched)
        self.watch(COMPONENT_INFO, lambda: {(component, version): 1.0})

    def add(self, counter: Metric, value: float, *labels: str) -> None:
        """Increase a counter by ``value``."""
        self._child(counter, labels).inc(value)

    def observe(self, histogram: Metric, value: float, *labels: str) -> None:
        """Record one value."""
        self._child(histogram, labels).observe(value)

    def watch(self, metric: Metric, read: Read) -> None:
        """Call ``read`` at each scrape."""
        self._watched.reads[metric].append(read)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        # The lookup of the library takes longer than the update.
        known = self._children.get((metric, labels))
        return self._new_child(metric, labels) if known is None else known

    def _instrument(self, metric: Metric) -> Any:
        if metric not in self._instruments:
            given: dict[str, Any] = {"labelnames": metric.labels, "registry": self._registry}
            self._instruments[metric] = (
                Counter(metric.name, metric.about, **given)
                if metric.kind == "counter"
                else Histogram(metric.name, metric.about, buckets=metric.buckets, **given)
            )
        return self._instruments[metric]

    def _new_child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        instrument = self._instrument(metric)
        if not metric.labels:
            child = instrument
        elif self._series[metric] < MOST_SERIES:
            self._series[metric] += 1
            child = instrument.labels(*labels)
        else:
            return instrument.labels(*[OTHER] * len(metric.labels))
        self._children[metric, labels] = child
        return child


def process_metrics() -> list[Metric]:
    """Return the metrics of each process, which the library reads on Linux."""
    return [
        Metric(f"{each.name}_total", "counter", each.documentation, COMPONENTS)
        if each.type == "counter"
        else Metric(each.name, "gauge", each.documentation, COMPONENTS)
        for each in ProcessCollector(registry=None).collect()
    ]


@asynccontextmanager
async def serve_metrics(
    text: Callable[[], bytes], host: str, port: int, *, token: str | None
) -> AsyncIterator[str]:
    """Serve ``GET /metrics`` until the context ends and yield its address.

    ``text`` returns the response; it is called in the event loop. For the other arguments and the
    errors see :func:`serve_http`.
    """

    async def answer(scope: Scope, _: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            await send_text(send, f"The only path is {PATH}.\n".encode(), MEDIA_TYPE, 404)
            return
        if token:
            check_bearer(headers_of(scope), token.encode())
        if scope["method"] in ("GET", "HEAD"):
            await send_text(send, text(), CONTENT_TYPE)
        else:
            await send_text(send, b"The method must be GET.\n", MEDIA_TYPE, 405)

    app = guarded(answer, host)
    async with serve_http(app, host, port, token=token, prefix="metrics") as url:
        yield f"{url}{PATH}"


class _Watched(Collector):
    """The metrics that are read at each scrape."""

    def __init__(self) -> None:
        self.reads: defaultdict[Metric, list[Read]] = defaultdict(list)

    def collect(self) -> Iterator[Any]:
        """Yield the metric families with their current values."""
        for metric, reads in self.reads.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.about, labels=metric.labels)
            for read in reads:
                for labels, value in read().items():
                    family.add_metric(labels, value)
            yield family
