"""Metrics of the local components: the gauges of a broker, an engine and models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ability_search.ops.metrics import metric_table
from ability_search.ops.metrics.meter import Meter
from kadi_client.provider import OK
from kadi_client.slots import FairSlots

if TYPE_CHECKING:
    from kadi_localnet.broker import Broker
    from kadi_localnet.database.backend import Counts
    from kadi_localnet.models import Models

_BROKER_COUNTS: Mapping[metric_table.Metric, Mapping[tuple[str, ...], str]] = {
    metric_table.BROKER_SESSIONS: {(): "sessions"},
    metric_table.BROKER_TOOLS: {(): "tools"},
    metric_table.BROKER_SUBSCRIPTIONS: {(): "subscriptions"},
    metric_table.BROKER_CALLS_IN_FLIGHT: {(): "outstanding_calls"},
    metric_table.BROKER_REFUSED: {(): "refused"},
    metric_table.BROKER_OUTBOX_FRAMES: {(): "outbox_frames"},
    metric_table.BROKER_OUTBOX_BYTES: {(): "outbox_bytes"},
    metric_table.BROKER_MEMORY_BYTES: {(): "memory_bytes"},
    metric_table.BROKER_EVENTS: {
        ("published",): "events_published",
        ("delivered",): "events_delivered",
        ("dropped",): "events_dropped",
    },
    metric_table.BROKER_SESSIONS_ENDED: {("overflow",): "overflows", ("silent",): "silent"},
}
"""Metric -> its label values -> the broker's name of the count."""
_FATES = ("completed", "failed", "timed_out", "cancelled", "provider_lost")


def watch_broker(meter: Meter, broker: Broker) -> None:
    """Measure the counters of the broker."""

    def read(names: Mapping[tuple[str, ...], str]) -> dict[tuple[str, ...], float]:
        stats = broker.stats()
        return {labels: stats[name] for labels, name in names.items()}

    for metric, names in _BROKER_COUNTS.items():
        meter.watch(metric, partial(read, names))
    meter.watch(
        metric_table.BROKER_CALLS,
        lambda: {
            (tool, fate): getattr(counts, fate)
            for tool, counts in broker.calls_by_tool().items()
            for fate in _FATES
        },
    )


def watch_database(meter: Meter, counts: Counts) -> None:
    """Measure the counters of a database backend."""
    meter.watch(
        metric_table.DATABASE_STATEMENTS,
        lambda: {("read",): counts.reads, ("write",): counts.writes},
    )
    meter.watch(metric_table.DATABASE_CONFLICTS, lambda: {(): counts.conflicts})


def watch_engine(meter: Meter, threads: FairSlots) -> None:
    """Measure the engine of a started ``EmbeddedDatabases`` and the calls that use it."""
    from kadi_localnet.database.jvm import heap_bytes

    meter.watch(metric_table.DATABASE_ENGINE_CALLS, lambda: {(): threads.calls})
    meter.watch(metric_table.DATABASE_HEAP_USED, lambda: {(): heap_bytes()[0]})
    meter.watch(metric_table.DATABASE_HEAP_MAX, lambda: {(): heap_bytes()[1]})


class ModelObserver:
    """Records the metrics of models."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        """Record a request."""
        self._meter.add(metric_table.MODEL_REQUESTS, 1, model, code)
        self._meter.observe(metric_table.MODEL_REQUEST_SECONDS, seconds, model)
        if code == OK:
            self._meter.add(metric_table.MODEL_TEXTS, texts, model)

    def ran(self, model: str, *, texts: int) -> None:
        """Record the size of a batch."""
        self._meter.observe(metric_table.MODEL_BATCH_TEXTS, texts, model)


def watch_models(meter: Meter, models: Models) -> None:
    """Measure the queues of local models."""
    meter.watch(
        metric_table.MODEL_QUEUED_TEXTS, lambda: {(name,): n for name, n in models.queued.items()}
    )
