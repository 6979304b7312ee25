"""The figures that `top` shows: reads the metrics of the components and sums them up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from pydantic.alias_generators import to_camel

from ability_search.config.setting_fields import Url
from ability_search.ops.metrics import metric_table as table
from ability_search.ops.metrics.metric_table import Metric
from ability_search.ops.metrics.scrape import NOTHING, Reading, added, parse
from kadi_client.provider import OK

State = Literal["up", "gone", "refused"]

_ANSWER_SECONDS = 3.0
_WINDOW_SECONDS = 10.0
"""Time window of rates and latencies, in seconds; shorter until that much time has passed."""
_UNAUTHORIZED = (401, 403)

_IN_FLIGHT = (table.CALLS_IN_FLIGHT, table.BROKER_CALLS_IN_FLIGHT, table.GATEWAY_IN_FLIGHT)
_WAITING = (table.CALLS_WAITING, table.BROKER_OUTBOX_FRAMES)
_BROKER = {
    "sessions": table.BROKER_SESSIONS,
    "callsInFlight": table.BROKER_CALLS_IN_FLIGHT,
    "outboxBytes": table.BROKER_OUTBOX_BYTES,
    "refused": table.BROKER_REFUSED,
}
_DATABASE = {
    "statements": table.DATABASE_STATEMENTS,
    "conflicts": table.DATABASE_CONFLICTS,
    "engineCalls": table.DATABASE_ENGINE_CALLS,
    "heapUsed": table.DATABASE_HEAP_USED,
    "heapMax": table.DATABASE_HEAP_MAX,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """The metrics of one component at one moment."""

    name: str
    url: str
    at: float
    """Unix time in seconds."""
    reading: Reading = NOTHING
    state: State = "up"


@dataclass(frozen=True, slots=True)
class ComponentFigures:
    """A component: its state, its queue and its memory in bytes."""

    name: str
    url: str
    state: State
    in_flight: float
    waiting: float
    memory: float


@dataclass(frozen=True, slots=True)
class CallFigures:
    """Calls of one tool or stage; latencies in seconds, ``None`` if there were no calls."""

    name: str
    calls: float
    """Calls since the start."""
    failed: float
    """Failed calls since the start."""
    per_second: float | None
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class EmbeddingFigures:
    """Embedded texts."""

    embedded: float
    per_second: float | None
    reused: float


@dataclass(frozen=True, slots=True)
class ChunkFigures:
    """Chunks written and deleted since the start."""

    indexed: float
    deleted: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all components at one moment; times in seconds, sizes in bytes."""

    at: float
    seconds: float | None
    """Time window of rates and latencies; ``None`` if it is unknown."""
    from_start: bool
    """Whether the time window begins at the start of the components."""
    parts: list[ComponentFigures]
    tools: list[CallFigures]
    stages: list[CallFigures]
    rpc: list[CallFigures]
    broker: dict[str, float]
    database: dict[str, float]
    queued_texts: dict[str, float]
    """Queued texts by model."""
    embedding: EmbeddingFigures
    chunks: ChunkFigures
    breakers_open: list[str]
    degraded: dict[str, float]
    retries: dict[str, float]
    jobs: float
    collections: float
    """Collections in the registry of a worker, the maximum over all workers."""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(
            self, dict_factory=lambda items: {to_camel(name): value for name, value in items}
        )


def figures(samples: Sequence[Sample], past: Sequence[Sequence[Sample]] = ()) -> Figures:
    """Compute the figures of one moment.

    Args:
        samples: Metrics of every component.
        past: Metrics of earlier moments, oldest first. Rates and latencies cover the time since
            the oldest; if empty, the time since the components started.
    """
    earlier = {
        each.url: each.reading for row in reversed(past) for each in row if each.state == "up"
    }
    up = [sample for sample in samples if sample.state == "up"]
    now = added(sample.reading for sample in up)
    change = added(sample.reading.since(earlier.get(sample.url, NOTHING)) for sample in up)
    at = max((sample.at for sample in samples), default=0.0)
    seconds = at - past[0][0].at if past else _age(up, at)
    embedded = change.total(table.EMBEDDING_TEXTS, origin="embedded")

    def calls(histogram: Metric, counter: Metric | None, label: str) -> list[CallFigures]:
        outcome = "outcome" if counter is table.RPC_CALLS else "code"
        return [
            CallFigures(
                name=name,
                calls=count,
                failed=count - now.total(counter, **{label: name, outcome: OK}) if counter else 0.0,
                per_second=_rate(change.total(counter or histogram, **{label: name}), seconds),
                p50=change.quantile(0.5, histogram, **{label: name}),
                p95=change.quantile(0.95, histogram, **{label: name}),
            )
            for name, count in now.by(counter or histogram, label).items()
        ]

    return Figures(
        at=at,
        seconds=seconds,
        from_start=not past,
        parts=[_component(sample) for sample in samples],
        tools=calls(table.TOOL_CALL_SECONDS, table.TOOL_CALLS, "tool"),
        stages=calls(table.QUERY_STAGE_SECONDS, None, "stage"),
        rpc=calls(table.RPC_SECONDS, table.RPC_CALLS, "tool"),
        broker={name: now.total(metric) for name, metric in _BROKER.items()},
        database={name: now.total(metric) for name, metric in _DATABASE.items()},
        queued_texts=now.by(table.MODEL_QUEUED_TEXTS, "model"),
        embedding=EmbeddingFigures(
            embedded=now.total(table.EMBEDDING_TEXTS, origin="embedded"),
            per_second=_rate(embedded, seconds),
            reused=now.total(table.EMBEDDING_TEXTS, origin="reused"),
        ),
        chunks=ChunkFigures(
            indexed=now.total(table.CHUNKS_INDEXED), deleted=now.total(table.CHUNKS_DELETED)
        ),
        breakers_open=list(_nonzero(now, table.BREAKER_OPEN, "target")),
        degraded=_nonzero(now, table.DEGRADED_ANSWERS, "reason"),
        retries=_nonzero(now, table.RETRIES, "target"),
        jobs=now.total(table.JOBS_RUNNING),
        collections=max((each.reading.total(table.COLLECTIONS_KNOWN) for each in up), default=0),
    )


def _age(samples: Sequence[Sample], at: float) -> float | None:
    """Return the seconds since the first component started; ``None`` if no start time is known."""
    starts = [sample.reading.total(table.PROCESS_START_TIME) for sample in samples]
    started = [start for start in starts if start]
    return max(at - min(started), 0.0) if started else None


def _rate(count: float, seconds: float | None) -> float | None:
    return count / seconds if seconds else None


def _nonzero(reading: Reading, metric: Metric, label: str) -> dict[str, float]:
    """Return the non-zero values by label value."""
    return {value: count for value, count in reading.by(metric, label).items() if count}


def _component(sample: Sample) -> ComponentFigures:
    reading = sample.reading
    return ComponentFigures(
        name=sample.name,
        url=str(Url(sample.url)),
        state=sample.state,
        in_flight=sum(map(reading.total, _IN_FLIGHT)),
        waiting=sum(map(reading.total, _WAITING)),
        memory=reading.total(table.PROCESS_RESIDENT_MEMORY),
    )


def metrics_client(token: str | None) -> httpx.AsyncClient:
    """Return an HTTP client for metrics; ``token`` is the bearer token, if one is needed."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(headers=headers, timeout=_ANSWER_SECONDS, trust_env=False)


async def sample_component(client: httpx.AsyncClient, url: str, name: str = "") -> Sample:
    """Read the metrics of a component; the default name is its own kind and its address."""
    at = time.time()
    shown = name or urlsplit(url).netloc.rpartition("@")[2]
    try:
        answer = await client.get(url)
        if answer.status_code in _UNAUTHORIZED:
            return Sample(shown, url, at, state="refused")
        reading = parse(answer.raise_for_status().text)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return Sample(shown, url, at, state="gone")
    if not name:
        shown = " ".join((*reading.by(table.COMPONENT_INFO, "part"), shown))
    return Sample(shown, url, at, reading)


class Sampler:
    """Reads the metrics of several components repeatedly.

    Args:
        addresses: Returns address -> component name, with an empty name where it is unknown.
    """

    def __init__(self, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._addresses = addresses
        self._past: deque[Sequence[Sample]] = deque()

    async def read(self, client: httpx.AsyncClient) -> Figures:
        """Read all components concurrently."""
        addresses = self._addresses().items()
        samples = await asyncio.gather(
            *(sample_component(client, url, name) for url, name in addresses)
        )
        now = time.time()
        while len(self._past) > 1 and self._past[1][0].at <= now - _WINDOW_SECONDS:
            self._past.popleft()
        found = figures(samples, self._past)
        self._past.append(samples)
        return found
