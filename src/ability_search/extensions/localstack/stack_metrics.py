"""The metrics of the broker, the database ability and the model manager."""

from __future__ import annotations

from collections.abc import Mapping

from ability_search.ops.metrics.metric_table import Components, Metric, metrics_in

TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

_BROKER = Components("broker")
_DATABASE = Components("database")
_MODELS = Components("models")

BROKER_SESSIONS = _BROKER.gauge("broker_sessions", "Open sessions.")
BROKER_TOOLS = _BROKER.gauge("broker_tools", "Registered tools.")
BROKER_SUBSCRIPTIONS = _BROKER.gauge("broker_subscriptions", "Subscriptions to events.")
BROKER_CALLS = _BROKER.counter(
    "broker_calls_total",
    "Routed calls that ended, by outcome: `completed`, `failed`, `timed_out`,"
    " `cancelled`, `provider_lost`.",
    "tool",
    "outcome",
)
BROKER_CALLS_IN_FLIGHT = _BROKER.gauge("broker_calls_in_flight", "Calls without a response yet.")
BROKER_REFUSED = _BROKER.counter(
    "broker_refused_total", "Refused requests, such as calls of an unknown tool."
)
BROKER_OUTBOX_FRAMES = _BROKER.gauge("broker_outbox_frames", "Frames queued for slow peers.")
BROKER_OUTBOX_BYTES = _BROKER.gauge("broker_outbox_bytes", "Size of these frames.")
BROKER_MEMORY_BYTES = _BROKER.gauge(
    "broker_memory_bytes",
    "Messages and registrations held for all sessions; see `local_broker_memory`.",
)
BROKER_EVENTS = _BROKER.counter(
    "broker_events_total",
    "Events by outcome: `published`, `delivered` (once per subscriber), `dropped` (unread).",
    "outcome",
)
BROKER_SESSIONS_ENDED = _BROKER.counter(
    "broker_sessions_ended_total",
    "Sessions closed by the broker, by reason: `overflow` (the peer reads too slowly), `silent`.",
    "reason",
)

DATABASE_STATEMENTS = _DATABASE.counter(
    "database_statements_total", "Requested statements, by kind: `read`, `write`.", "kind"
)
DATABASE_CONFLICTS = _DATABASE.counter(
    "database_conflicts_total",
    "Transactions that conflicted with a concurrent one; most are retried.",
)
DATABASE_ENGINE_CALLS = _DATABASE.gauge(
    "database_engine_calls", "Running and queued calls of the embedded engine."
)
DATABASE_HEAP_USED = _DATABASE.gauge("database_heap_used_bytes", "Java heap in use.")
DATABASE_HEAP_MAX = _DATABASE.gauge("database_heap_max_bytes", "Maximum size of the Java heap.")

MODEL_REQUESTS = _MODELS.counter(
    "model_requests_total",
    "Completed requests, over the network and over HTTP, by code: `ok` or an error code.",
    "model",
    "code",
)
MODEL_REQUEST_SECONDS = _MODELS.histogram(
    "model_request_seconds", "Duration of these requests.", "model"
)
MODEL_TEXTS = _MODELS.counter("model_texts_total", "Embedded or scored texts.", "model")
MODEL_BATCH_TEXTS = _MODELS.histogram(
    "model_batch_texts", "Texts in one batch of a local model.", "model", buckets=TEXTS
)
MODEL_QUEUED_TEXTS = _MODELS.gauge(
    "model_queued_texts", "Running and queued texts of a local model.", "model"
)

METRICS = metrics_in(globals())

BROKER_COUNTS: Mapping[Metric, Mapping[tuple[str, ...], str]] = {
    BROKER_SESSIONS: {(): "sessions"},
    BROKER_TOOLS: {(): "tools"},
    BROKER_SUBSCRIPTIONS: {(): "subscriptions"},
    BROKER_CALLS_IN_FLIGHT: {(): "outstanding_calls"},
    BROKER_REFUSED: {(): "refused"},
    BROKER_OUTBOX_FRAMES: {(): "outbox_frames"},
    BROKER_OUTBOX_BYTES: {(): "outbox_bytes"},
    BROKER_MEMORY_BYTES: {(): "memory_bytes"},
    BROKER_EVENTS: {
        ("published",): "events_published",
        ("delivered",): "events_delivered",
        ("dropped",): "events_dropped",
    },
    BROKER_SESSIONS_ENDED: {("overflow",): "overflows", ("silent",): "silent"},
}
"""Metric -> its label values -> the broker's name of the count."""
