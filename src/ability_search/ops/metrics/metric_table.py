"""Every metric of the product: its name, type, labels, meaning, and which parts have it.

Names and units are those of Prometheus: counters end in ``_total``, times are in seconds, sizes in
bytes. A label only has values of a bounded set: tools, codes, stages, served models; never a text
or a name that a user chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["broker", "database", "models", "worker", "gateway"]

PARTS: tuple[Part, ...] = ("broker", "database", "models", "worker", "gateway")

PATH = "/metrics"
"""Path at which each component serves its metrics."""

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0),
)
"""Upper bounds: from a step of a query to the indexing of a large batch."""
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; compared by identity."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    parts: tuple[Part, ...]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = SECONDS
    """Upper bounds of a histogram."""
    expected: tuple[str, ...] = ()
    """Values of its only label that are there from the start, at 0: the first time is seen too."""


_OFFERING: tuple[Part, ...] = ("database", "models", "worker")
_BROKER: tuple[Part, ...] = ("broker",)
_DATABASE: tuple[Part, ...] = ("database",)
_MODELS: tuple[Part, ...] = ("models",)
_WORKER: tuple[Part, ...] = ("worker",)
_GATEWAY: tuple[Part, ...] = ("gateway",)

PART_INFO = Metric(
    "ability_search_part_info", "gauge", "1; which part this is.", PARTS, ("part", "version")
)
LOOP_HELD_SECONDS = Metric(
    "ability_search_loop_held_seconds",
    "histogram",
    "How late its event loop came to a task, ten times a second: so long nothing else could run.",
    PARTS,
)

TOOL_CALLS = Metric(
    "ability_search_tool_calls_total",
    "counter",
    "Calls of its tools that ended, by code: `ok`, or that of the failure.",
    _OFFERING,
    ("tool", "code"),
)
TOOL_CALL_SECONDS = Metric(
    "ability_search_tool_call_seconds",
    "histogram",
    "How long calls of its tools took.",
    _OFFERING,
    ("tool",),
)
CALLS_IN_FLIGHT = Metric(
    "ability_search_calls_in_flight", "gauge", "Calls of its tools being worked on.", _OFFERING
)
CALLS_WAITING = Metric(
    "ability_search_calls_waiting", "gauge", "Calls of its tools that wait for a turn.", _OFFERING
)

QUERY_STAGE_SECONDS = Metric(
    "ability_search_query_stage_seconds",
    "histogram",
    "How long the stages of queries took, as in `timings` of an answer; `total` is all of it.",
    _WORKER,
    ("stage",),
)
DEGRADED_ANSWERS = Metric(
    "ability_search_degraded_answers_total",
    "counter",
    "Answers with less than was asked for, by the code of the reason.",
    _WORKER,
    ("reason",),
    expected=("embedding_unavailable", "database_unavailable", "dimension_mismatch"),
)
RPC_CALLS = Metric(
    "ability_search_rpc_calls_total",
    "counter",
    "Calls of the database and the models, over the network or over HTTP (then `tool` is the"
    " route), by outcome: `ok`, `refused` (an answer that says so), `failed`, `timeout`,"
    " `not_connected`, `cancelled` (nobody waited any more, or the time was up).",
    _WORKER,
    ("tool", "outcome"),
)
RPC_SECONDS = Metric(
    "ability_search_rpc_seconds", "histogram", "How long these calls took.", _WORKER, ("tool",)
)
RETRIES = Metric(
    "ability_search_retries_total",
    "counter",
    "Requests made again after a failure that may pass, by what was asked.",
    _WORKER,
    ("target",),
    expected=("database", "embedder"),
)
BREAKER_OPEN = Metric(
    "ability_search_breaker_open",
    "gauge",
    "1 while a model that kept failing is left alone.",
    _WORKER,
    ("target",),
)
EMBEDDING_BATCHES = Metric(
    "ability_search_embedding_batches_total",
    "counter",
    "Requests for vectors that were answered.",
    _WORKER,
)
EMBEDDING_TEXTS = Metric(
    "ability_search_embedding_texts_total",
    "counter",
    "Texts and where their vectors came from: `embedded`, or `reused` from the database.",
    _WORKER,
    ("origin",),
    expected=("embedded", "reused"),
)
CHUNKS_INDEXED = Metric(
    "ability_search_chunks_indexed_total", "counter", "Chunks that were stored.", _WORKER
)
CHUNKS_DELETED = Metric(
    "ability_search_chunks_deleted_total",
    "counter",
    "Chunks that were deleted with their source or collection; not those that were replaced.",
    _WORKER,
)
JOBS_RUNNING = Metric(
    "ability_search_jobs_running", "gauge", "Reindex jobs that it works on.", _WORKER
)
COLLECTIONS_KNOWN = Metric(
    "ability_search_collections_known",
    "gauge",
    "Collections whose record it remembers.",
    _WORKER,
)

BROKER_SESSIONS = Metric(
    "ability_search_broker_sessions", "gauge", "Sessions that are open.", _BROKER
)
BROKER_TOOLS = Metric(
    "ability_search_broker_tools", "gauge", "Tools that somebody offers.", _BROKER
)
BROKER_SUBSCRIPTIONS = Metric(
    "ability_search_broker_subscriptions", "gauge", "Subscriptions to events.", _BROKER
)
BROKER_CALLS = Metric(
    "ability_search_broker_calls_total",
    "counter",
    "Calls that were routed and ended, by outcome: `completed`, `failed`, `timed_out`,"
    " `cancelled`, `provider_lost`.",
    _BROKER,
    ("tool", "outcome"),
)
BROKER_CALLS_IN_FLIGHT = Metric(
    "ability_search_broker_calls_in_flight", "gauge", "Calls that wait for their answer.", _BROKER
)
BROKER_REFUSED = Metric(
    "ability_search_broker_refused_total",
    "counter",
    "Requests that were refused, such as calls of a tool that nobody offers.",
    _BROKER,
)
BROKER_OUTBOX_FRAMES = Metric(
    "ability_search_broker_outbox_frames",
    "gauge",
    "Frames that wait for a peer to read them.",
    _BROKER,
)
BROKER_OUTBOX_BYTES = Metric("ability_search_broker_outbox_bytes", "gauge", "Their size.", _BROKER)
BROKER_EVENTS = Metric(
    "ability_search_broker_events_total",
    "counter",
    "Events, by what became of them: `published`, `delivered` (to each subscriber), `dropped`.",
    _BROKER,
    ("outcome",),
)
BROKER_SESSIONS_ENDED = Metric(
    "ability_search_broker_sessions_ended_total",
    "counter",
    "Sessions that the broker ended, by reason: `overflow` (too slow to read), `silent`.",
    _BROKER,
    ("reason",),
)

DATABASE_STATEMENTS = Metric(
    "ability_search_database_statements_total",
    "counter",
    "Statements that were asked for, by kind: `read`, `write`.",
    _DATABASE,
    ("kind",),
)
DATABASE_CONFLICTS = Metric(
    "ability_search_database_conflicts_total",
    "counter",
    "Transactions that lost against a concurrent one; most are run again.",
    _DATABASE,
)
DATABASE_ENGINE_CALLS = Metric(
    "ability_search_database_engine_calls",
    "gauge",
    "Calls that the embedded engine works on or lets wait.",
    _DATABASE,
)
DATABASE_HEAP_USED = Metric(
    "ability_search_database_heap_used_bytes", "gauge", "Java heap in use.", _DATABASE
)
DATABASE_HEAP_MAX = Metric(
    "ability_search_database_heap_max_bytes", "gauge", "Most that the Java heap may use.", _DATABASE
)

MODEL_REQUESTS = Metric(
    "ability_search_model_requests_total",
    "counter",
    "Requests that ended, over the network and over HTTP, by code: `ok`, or that of the failure.",
    _MODELS,
    ("model", "code"),
)
MODEL_REQUEST_SECONDS = Metric(
    "ability_search_model_request_seconds",
    "histogram",
    "How long these requests took.",
    _MODELS,
    ("model",),
)
MODEL_TEXTS = Metric(
    "ability_search_model_texts_total",
    "counter",
    "Texts that were embedded or scored.",
    _MODELS,
    ("model",),
)
MODEL_BATCH_TEXTS = Metric(
    "ability_search_model_batch_texts",
    "histogram",
    "Texts that a local model read at once.",
    _MODELS,
    ("model",),
    TEXTS,
)
MODEL_QUEUED_TEXTS = Metric(
    "ability_search_model_queued_texts",
    "gauge",
    "Texts that a local model works on or lets wait.",
    _MODELS,
    ("model",),
)

GATEWAY_CALLS = Metric(
    "ability_search_gateway_tool_calls_total",
    "counter",
    "Calls of tools that ended, by code: `ok`, or that of the failure.",
    _GATEWAY,
    ("tool", "code"),
)
GATEWAY_CALL_SECONDS = Metric(
    "ability_search_gateway_tool_call_seconds",
    "histogram",
    "How long calls of tools took.",
    _GATEWAY,
    ("tool",),
)
GATEWAY_RESPONSES = Metric(
    "ability_search_gateway_responses_total",
    "counter",
    "Responses, by status.",
    _GATEWAY,
    ("status",),
)
GATEWAY_IN_FLIGHT = Metric(
    "ability_search_gateway_requests_in_flight", "gauge", "Requests in progress.", _GATEWAY
)
GATEWAY_STREAMS = Metric(
    "ability_search_gateway_streams_open", "gauge", "Event streams that are open.", _GATEWAY
)
GATEWAY_RATE_LIMITED = Metric(
    "ability_search_gateway_rate_limited_total",
    "counter",
    "Requests refused because their address sent too many.",
    _GATEWAY,
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""What the parts count, in the order of the documentation."""

PROCESS_CPU_SECONDS = Metric(
    "process_cpu_seconds_total", "counter", "Processor time of the process.", PARTS
)
PROCESS_RESIDENT_MEMORY = Metric(
    "process_resident_memory_bytes", "gauge", "Memory of the process.", PARTS
)
PROCESS_OPEN_FILES = Metric("process_open_fds", "gauge", "File descriptors in use.", PARTS)
PROCESS_START_TIME = Metric(
    "process_start_time_seconds", "gauge", "When the process started, Unix time.", PARTS
)

PROCESS: tuple[Metric, ...] = (
    PROCESS_CPU_SECONDS,
    PROCESS_RESIDENT_MEMORY,
    PROCESS_OPEN_FILES,
    PROCESS_START_TIME,
)
"""What Linux tells of each process."""
