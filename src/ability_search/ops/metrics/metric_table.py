"""Metrics: name, type, labels, meaning, and the components that have each; those of the worker.

Names and units are those of Prometheus: counters end in ``_total``, times are in seconds, sizes in
bytes. A label only has values of a bounded set: tools, codes, stages, served models; never a text
or a name that a user chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

ComponentName = Literal["backplane", "broker", "database", "models", "worker", "gateway"]

COMPONENTS: tuple[ComponentName, ...] = get_args(ComponentName)

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0),
)
"""Upper bounds of buckets, from a stage of a query to the indexing of a large batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; compared by identity."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    components: tuple[ComponentName, ...]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = SECONDS
    """Upper bounds of a histogram."""
    expected: tuple[str, ...] = ()
    """Values of the only label that start at 0, so that the first increase is visible."""


class Components:
    """Components, and the declaration of a metric that they all have."""

    def __init__(self, *names: ComponentName) -> None:
        self._names = names

    def counter(
        self, name: str, about: str, *labels: str, expected: tuple[str, ...] = ()
    ) -> Metric:
        """Return a counter; its name ends in ``_total``."""
        full = f"ability_search_{name}"
        return Metric(full, "counter", about, self._names, labels, expected=expected)

    def gauge(self, name: str, about: str, *labels: str) -> Metric:
        """Return a gauge."""
        return Metric(f"ability_search_{name}", "gauge", about, self._names, labels)

    def histogram(
        self, name: str, about: str, *labels: str, buckets: tuple[float, ...] = SECONDS
    ) -> Metric:
        """Return a histogram; its name ends in the unit of the values."""
        return Metric(f"ability_search_{name}", "histogram", about, self._names, labels, buckets)


def metrics_in(names: Mapping[str, object]) -> tuple[Metric, ...]:
    """Return the metrics among the global names of a module, in the order of the documentation."""
    return tuple(value for value in names.values() if isinstance(value, Metric))


_ALL = Components(*COMPONENTS)
_OFFERING = Components("database", "models", "worker")
_WORKER = Components("worker")

COMPONENT_INFO = _ALL.gauge(
    "part_info", "Always 1; the labels are the component and its version.", "part", "version"
)
LOOP_HELD_SECONDS = _ALL.histogram(
    "loop_held_seconds", "Time for which the event loop was blocked, measured ten times a second."
)

TOOL_CALLS = _OFFERING.counter(
    "tool_calls_total", "Completed tool calls, by code: `ok` or an error code.", "tool", "code"
)
TOOL_CALL_SECONDS = _OFFERING.histogram("tool_call_seconds", "Duration of tool calls.", "tool")
CALLS_IN_FLIGHT = _OFFERING.gauge("calls_in_flight", "Tool calls in progress.")
CALLS_WAITING = _OFFERING.gauge("calls_waiting", "Queued tool calls.")

QUERY_STAGE_SECONDS = _WORKER.histogram(
    "query_stage_seconds",
    "Duration of each stage of a query, as in `timings` of a result; `total` is the whole query.",
    "stage",
)
DEGRADED_ANSWERS = _WORKER.counter(
    "degraded_answers_total",
    "Query results that are incomplete, by error code of the reason.",
    "reason",
    expected=("embedding_unavailable", "database_unavailable", "dimension_mismatch"),
)
RPC_CALLS = _WORKER.counter(
    "rpc_calls_total",
    "Calls to the database and the models, over the network or over HTTP (`tool` is then the"
    " route), by outcome: `ok`, `refused` (the response is an error), `failed`, `timeout`,"
    " `not_connected`, `cancelled` (the caller left, or the deadline passed).",
    "tool",
    "outcome",
)
RPC_SECONDS = _WORKER.histogram("rpc_seconds", "Duration of these calls.", "tool")
RETRIES = _WORKER.counter(
    "retries_total",
    "Retries after a transient failure, by target.",
    "target",
    expected=("database", "embedder"),
)
BREAKER_OPEN = _WORKER.gauge(
    "breaker_open", "1 while the circuit breaker of a model is open, otherwise 0.", "target"
)
EMBEDDING_BATCHES = _WORKER.counter("embedding_batches_total", "Completed embedding requests.")
EMBEDDING_TEXTS = _WORKER.counter(
    "embedding_texts_total",
    "Texts by the origin of their vectors: `embedded`, or `reused` from the database.",
    "origin",
    expected=("embedded", "reused"),
)
CHUNKS_INDEXED = _WORKER.counter("chunks_indexed_total", "Stored chunks.")
CHUNKS_DELETED = _WORKER.counter(
    "chunks_deleted_total",
    "Chunks deleted with their source or collection; replaced chunks do not count.",
)
JOBS_RUNNING = _WORKER.gauge("jobs_running", "Reindex jobs in progress.")
COLLECTIONS_KNOWN = _WORKER.gauge("collections_known", "Collections in the cache of the registry.")

METRICS = metrics_in(globals())
"""The metrics of the worker, and those that several components have."""
