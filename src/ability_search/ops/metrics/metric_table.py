"""The table of metrics: name, type, labels, meaning, and the components that have each.

Names and units are those of Prometheus: counters end in ``_total``, times are in seconds, sizes in
bytes. A label only has values of a bounded set: tools, codes, stages, served models; never a text
or a name that a user chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ComponentName = Literal["backplane", "broker", "database", "models", "worker", "gateway"]

COMPONENTS: tuple[ComponentName, ...] = (
    "backplane",
    "broker",
    "database",
    "models",
    "worker",
    "gateway",
)

PATH = "/metrics"
"""Path at which each component serves its metrics."""

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0),
)
"""Upper bounds of buckets, from a stage of a query to the indexing of a large batch."""
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


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


_OFFERING: tuple[ComponentName, ...] = ("database", "models", "worker")
_BROKER: tuple[ComponentName, ...] = ("broker",)
_DATABASE: tuple[ComponentName, ...] = ("database",)
_MODELS: tuple[ComponentName, ...] = ("models",)
_WORKER: tuple[ComponentName, ...] = ("worker",)
_GATEWAY: tuple[ComponentName, ...] = ("gateway",)

COMPONENT_INFO = Metric(
    "ability_search_part_info",
    "gauge",
    "Always 1; the labels are the component and its version.",
    COMPONENTS,
    ("part", "version"),
)
LOOP_HELD_SECONDS = Metric(
    "ability_search_loop_held_seconds",
    "histogram",
    "Time for which the event loop was blocked, measured ten times a second.",
    COMPONENTS,
)

TOOL_CALLS = Metric(
    "ability_search_tool_calls_total",
    "counter",
    "Completed tool calls, by code: `ok` or an error code.",
    _OFFERING,
    ("tool", "code"),
)
TOOL_CALL_SECONDS = Metric(
    "ability_search_tool_call_seconds",
    "histogram",
    "Duration of tool calls.",
    _OFFERING,
    ("tool",),
)
CALLS_IN_FLIGHT = Metric(
    "ability_search_calls_in_flight", "gauge", "Tool calls in progress.", _OFFERING
)
CALLS_WAITING = Metric("ability_search_calls_waiting", "gauge", "Queued tool calls.", _OFFERING)

QUERY_STAGE_SECONDS = Metric(
    "ability_search_query_stage_seconds",
    "histogram",
    "Duration of each stage of a query, as in `timings` of a result; `total` is the whole query.",
    _WORKER,
    ("stage",),
)
DEGRADED_ANSWERS = Metric(
    "ability_search_degraded_answers_total",
    "counter",
    "Query results that are incomplete, by error code of the reason.",
    _WORKER,
    ("reason",),
    expected=("embedding_unavailable", "database_unavailable", "dimension_mismatch"),
)
RPC_CALLS = Metric(
    "ability_search_rpc_calls_total",
    "counter",
    "Calls to the database and the models, over the network or over HTTP (`tool` is then the"
    " route), by outcome: `ok`, `refused` (the response is an error), `failed`, `timeout`,"
    " `not_connected`, `cancelled` (the caller left, or the deadline passed).",
    _WORKER,
    ("tool", "outcome"),
)
RPC_SECONDS = Metric(
    "ability_search_rpc_seconds", "histogram", "Duration of these calls.", _WORKER, ("tool",)
)
RETRIES = Metric(
    "ability_search_retries_total",
    "counter",
    "Retries after a transient failure, by target.",
    _WORKER,
    ("target",),
    expected=("database", "embedder"),
)
BREAKER_OPEN = Metric(
    "ability_search_breaker_open",
    "gauge",
    "1 while the circuit breaker of a model is open, otherwise 0.",
    _WORKER,
    ("target",),
)
EMBEDDING_BATCHES = Metric(
    "ability_search_embedding_batches_total",
    "counter",
    "Completed embedding requests.",
    _WORKER,
)
EMBEDDING_TEXTS = Metric(
    "ability_search_embedding_texts_total",
    "counter",
    "Texts by the origin of their vectors: `embedded`, or `reused` from the database.",
    _WORKER,
    ("origin",),
    expected=("embedded", "reused"),
)
CHUNKS_INDEXED = Metric("ability_search_chunks_indexed_total", "counter", "Stored chunks.", _WORKER)
CHUNKS_DELETED = Metric(
    "ability_search_chunks_deleted_total",
    "counter",
    "Chunks deleted with their source or collection; replaced chunks do not count.",
    _WORKER,
)
JOBS_RUNNING = Metric("ability_search_jobs_running", "gauge", "Reindex jobs in progress.", _WORKER)
COLLECTIONS_KNOWN = Metric(
    "ability_search_collections_known",
    "gauge",
    "Collections in the cache of the registry.",
    _WORKER,
)

BROKER_SESSIONS = Metric("ability_search_broker_sessions", "gauge", "Open sessions.", _BROKER)
BROKER_TOOLS = Metric("ability_search_broker_tools", "gauge", "Registered tools.", _BROKER)
BROKER_SUBSCRIPTIONS = Metric(
    "ability_search_broker_subscriptions", "gauge", "Subscriptions to events.", _BROKER
)
BROKER_CALLS = Metric(
    "ability_search_broker_calls_total",
    "counter",
    "Routed calls that ended, by outcome: `completed`, `failed`, `timed_out`,"
    " `cancelled`, `provider_lost`.",
    _BROKER,
    ("tool", "outcome"),
)
BROKER_CALLS_IN_FLIGHT = Metric(
    "ability_search_broker_calls_in_flight", "gauge", "Calls without a response yet.", _BROKER
)
BROKER_REFUSED = Metric(
    "ability_search_broker_refused_total",
    "counter",
    "Refused requests, such as calls of an unknown tool.",
    _BROKER,
)
BROKER_OUTBOX_FRAMES = Metric(
    "ability_search_broker_outbox_frames",
    "gauge",
    "Frames queued for slow peers.",
    _BROKER,
)
BROKER_OUTBOX_BYTES = Metric(
    "ability_search_broker_outbox_bytes", "gauge", "Size of these frames.", _BROKER
)
BROKER_MEMORY_BYTES = Metric(
    "ability_search_broker_memory_bytes",
    "gauge",
    "Messages and registrations held for all sessions; see `local_broker_memory`.",
    _BROKER,
)
BROKER_EVENTS = Metric(
    "ability_search_broker_events_total",
    "counter",
    "Events by outcome: `published`, `delivered` (once per subscriber), `dropped` (unread).",
    _BROKER,
    ("outcome",),
)
BROKER_SESSIONS_ENDED = Metric(
    "ability_search_broker_sessions_ended_total",
    "counter",
    "Sessions closed by the broker, by reason: `overflow` (the peer reads too slowly), `silent`.",
    _BROKER,
    ("reason",),
)

DATABASE_STATEMENTS = Metric(
    "ability_search_database_statements_total",
    "counter",
    "Requested statements, by kind: `read`, `write`.",
    _DATABASE,
    ("kind",),
)
DATABASE_CONFLICTS = Metric(
    "ability_search_database_conflicts_total",
    "counter",
    "Transactions that conflicted with a concurrent one; most are retried.",
    _DATABASE,
)
DATABASE_ENGINE_CALLS = Metric(
    "ability_search_database_engine_calls",
    "gauge",
    "Running and queued calls of the embedded engine.",
    _DATABASE,
)
DATABASE_HEAP_USED = Metric(
    "ability_search_database_heap_used_bytes", "gauge", "Java heap in use.", _DATABASE
)
DATABASE_HEAP_MAX = Metric(
    "ability_search_database_heap_max_bytes", "gauge", "Maximum size of the Java heap.", _DATABASE
)

MODEL_REQUESTS = Metric(
    "ability_search_model_requests_total",
    "counter",
    "Completed requests, over the network and over HTTP, by code: `ok` or an error code.",
    _MODELS,
    ("model", "code"),
)
MODEL_REQUEST_SECONDS = Metric(
    "ability_search_model_request_seconds",
    "histogram",
    "Duration of these requests.",
    _MODELS,
    ("model",),
)
MODEL_TEXTS = Metric(
    "ability_search_model_texts_total",
    "counter",
    "Embedded or scored texts.",
    _MODELS,
    ("model",),
)
MODEL_BATCH_TEXTS = Metric(
    "ability_search_model_batch_texts",
    "histogram",
    "Texts in one batch of a local model.",
    _MODELS,
    ("model",),
    TEXTS,
)
MODEL_QUEUED_TEXTS = Metric(
    "ability_search_model_queued_texts",
    "gauge",
    "Running and queued texts of a local model.",
    _MODELS,
    ("model",),
)

GATEWAY_CALLS = Metric(
    "ability_search_gateway_tool_calls_total",
    "counter",
    "Completed tool calls, by code: `ok` or an error code.",
    _GATEWAY,
    ("tool", "code"),
)
GATEWAY_CALL_SECONDS = Metric(
    "ability_search_gateway_tool_call_seconds",
    "histogram",
    "Duration of tool calls.",
    _GATEWAY,
    ("tool",),
)
GATEWAY_RESPONSES = Metric(
    "ability_search_gateway_responses_total",
    "counter",
    "Responses by status.",
    _GATEWAY,
    ("status",),
)
GATEWAY_IN_FLIGHT = Metric(
    "ability_search_gateway_requests_in_flight", "gauge", "Requests in progress.", _GATEWAY
)
GATEWAY_STREAMS = Metric(
    "ability_search_gateway_streams_open", "gauge", "Open event streams.", _GATEWAY
)
GATEWAY_RATE_LIMITED = Metric(
    "ability_search_gateway_rate_limited_total",
    "counter",
    "Requests refused by the rate limit of their address.",
    _GATEWAY,
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""The metrics of the components, in the order of the documentation."""

PROCESS_CPU_SECONDS = Metric(
    "process_cpu_seconds_total", "counter", "CPU time of the process.", COMPONENTS
)
PROCESS_RESIDENT_MEMORY = Metric(
    "process_resident_memory_bytes", "gauge", "Resident memory of the process.", COMPONENTS
)
PROCESS_OPEN_FILES = Metric("process_open_fds", "gauge", "Open file descriptors.", COMPONENTS)
PROCESS_START_TIME = Metric(
    "process_start_time_seconds", "gauge", "Start time of the process, as Unix time.", COMPONENTS
)

PROCESS: tuple[Metric, ...] = (
    PROCESS_CPU_SECONDS,
    PROCESS_RESIDENT_MEMORY,
    PROCESS_OPEN_FILES,
    PROCESS_START_TIME,
)
"""Metrics of each process on Linux."""
