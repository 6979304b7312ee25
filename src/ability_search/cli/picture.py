"""The figures that `top` shows, computed from the metrics of the components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ability_search.config.setting_fields import Url
from ability_search.ops.metrics import metric_table
from ability_search.ops.metrics.metric_table import Metric
from ability_search.ops.metrics.scrape import NOTHING, Reading, added
from kadi_client.provider import OK

State = Literal["up", "gone", "refused"]


@dataclass(frozen=True, slots=True)
class Look:
    """The metrics of one component at one moment."""

    name: str
    url: str
    at: float
    """Unix time in seconds."""
    reading: Reading = NOTHING
    state: State = "up"


@dataclass(frozen=True, slots=True)
class PartLine:
    """A component: its state, its queue and its memory in bytes."""

    name: str
    url: str
    state: State
    in_flight: float
    waiting: float
    memory: float


@dataclass(frozen=True, slots=True)
class CallLine:
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
class Picture:
    """The figures of all components at one moment."""

    at: float
    seconds: float | None
    """Time window of rates and latencies; ``None`` if it is unknown."""
    from_start: bool
    """Whether the time window begins at the start of the components."""
    parts: Sequence[PartLine]
    tools: Sequence[CallLine]
    stages: Sequence[CallLine]
    rpc: Sequence[CallLine]
    broker: Mapping[str, float]
    database: Mapping[str, float]
    queued_texts: Mapping[str, float]
    """Queued texts by model."""
    embedded: float
    embedded_per_second: float | None
    reused: float
    chunks_indexed: float
    chunks_deleted: float
    breakers_open: Sequence[str]
    degraded: Mapping[str, float]
    retries: Mapping[str, float]
    jobs: float
    collections: float
    """Collections in the registry of a worker, the maximum over all workers."""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object; times in seconds, sizes in bytes."""
        return {
            "at": self.at,
            "seconds": self.seconds,
            "fromStart": self.from_start,
            "parts": [
                {
                    "name": part.name,
                    "url": part.url,
                    "state": part.state,
                    "inFlight": part.in_flight,
                    "waiting": part.waiting,
                    "memory": part.memory,
                }
                for part in self.parts
            ],
            "tools": [_as_json(line) for line in self.tools],
            "stages": [_as_json(line) for line in self.stages],
            "rpc": [_as_json(line) for line in self.rpc],
            "broker": dict(self.broker),
            "database": dict(self.database),
            "queuedTexts": dict(self.queued_texts),
            "embedding": {
                "embedded": self.embedded,
                "perSecond": self.embedded_per_second,
                "reused": self.reused,
            },
            "chunks": {"indexed": self.chunks_indexed, "deleted": self.chunks_deleted},
            "breakersOpen": list(self.breakers_open),
            "degraded": dict(self.degraded),
            "retries": dict(self.retries),
            "jobs": self.jobs,
            "collections": self.collections,
        }


def picture(looks: Sequence[Look], past: Sequence[Sequence[Look]] = ()) -> Picture:
    """Compute the figures of one moment.

    Args:
        looks: Metrics of every component.
        past: Metrics of earlier moments, oldest first. Rates and latencies cover the time since
            the oldest; if empty, the time since the components started.
    """
    earlier = {
        look.url: look.reading for looks in reversed(past) for look in looks if look.state == "up"
    }
    there = [look for look in looks if look.state == "up"]
    now = added(look.reading for look in there)
    change = added(look.reading.since(earlier.get(look.url, NOTHING)) for look in there)
    at = max((look.at for look in looks), default=0.0)
    seconds = at - past[0][0].at if past else _age(there, at)
    embedded = now.total(metric_table.EMBEDDING_TEXTS, origin="embedded")
    return Picture(
        at=at,
        seconds=seconds,
        from_start=not past,
        parts=[_part(look) for look in looks],
        tools=_calls(
            now, change, seconds, metric_table.TOOL_CALLS, metric_table.TOOL_CALL_SECONDS, "code"
        ),
        stages=_stages(now, change, seconds),
        rpc=_calls(
            now, change, seconds, metric_table.RPC_CALLS, metric_table.RPC_SECONDS, "outcome"
        ),
        broker=_broker(now),
        database=_database(now),
        queued_texts=now.by(metric_table.MODEL_QUEUED_TEXTS, "model"),
        embedded=embedded,
        embedded_per_second=_rate(
            change.total(metric_table.EMBEDDING_TEXTS, origin="embedded"), seconds
        ),
        reused=now.total(metric_table.EMBEDDING_TEXTS, origin="reused"),
        chunks_indexed=now.total(metric_table.CHUNKS_INDEXED),
        chunks_deleted=now.total(metric_table.CHUNKS_DELETED),
        breakers_open=[
            name for name, n in now.by(metric_table.BREAKER_OPEN, "target").items() if n
        ],
        degraded=_counted(now, metric_table.DEGRADED_ANSWERS, "reason"),
        retries=_counted(now, metric_table.RETRIES, "target"),
        jobs=now.total(metric_table.JOBS_RUNNING),
        collections=max(
            (each.reading.total(metric_table.COLLECTIONS_KNOWN) for each in there), default=0
        ),
    )


def _as_json(line: CallLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "calls": line.calls,
        "failed": line.failed,
        "perSecond": line.per_second,
        "p50": line.p50,
        "p95": line.p95,
    }


def _age(looks: Sequence[Look], at: float) -> float | None:
    """Return the seconds since the first component started; ``None`` if no start time is known."""
    starts = [look.reading.total(metric_table.PROCESS_START_TIME) for look in looks]
    started = [start for start in starts if start]
    return max(at - min(started), 0.0) if started else None


def _rate(count: float, seconds: float | None) -> float | None:
    return count / seconds if seconds else None


def _counted(reading: Reading, counter: Metric, label: str) -> dict[str, float]:
    """Return the non-zero counts by label value."""
    return {value: count for value, count in reading.by(counter, label).items() if count}


def _part(look: Look) -> PartLine:
    reading = look.reading
    in_flight = (
        metric_table.CALLS_IN_FLIGHT,
        metric_table.BROKER_CALLS_IN_FLIGHT,
        metric_table.GATEWAY_IN_FLIGHT,
    )
    waiting = (metric_table.CALLS_WAITING, metric_table.BROKER_OUTBOX_FRAMES)
    return PartLine(
        look.name,
        str(Url(look.url)),
        look.state,
        sum(map(reading.total, in_flight)),
        sum(map(reading.total, waiting)),
        reading.total(metric_table.PROCESS_RESIDENT_MEMORY),
    )


def _calls(
    now: Reading,
    change: Reading,
    seconds: float | None,
    counter: Metric,
    histogram: Metric,
    outcome: str,
) -> list[CallLine]:
    return [
        CallLine(
            name=tool,
            calls=calls,
            failed=calls - now.total(counter, tool=tool, **{outcome: OK}),
            per_second=_rate(change.total(counter, tool=tool), seconds),
            p50=change.quantile(0.5, histogram, tool=tool),
            p95=change.quantile(0.95, histogram, tool=tool),
        )
        for tool, calls in now.by(counter, "tool").items()
    ]


def _stages(now: Reading, change: Reading, seconds: float | None) -> list[CallLine]:
    metric = metric_table.QUERY_STAGE_SECONDS
    return [
        CallLine(
            name=stage,
            calls=times,
            failed=0.0,
            per_second=_rate(change.total(metric, stage=stage), seconds),
            p50=change.quantile(0.5, metric, stage=stage),
            p95=change.quantile(0.95, metric, stage=stage),
        )
        for stage, times in now.by(metric, "stage").items()
    ]


def _broker(now: Reading) -> dict[str, float]:
    return {
        "sessions": now.total(metric_table.BROKER_SESSIONS),
        "callsInFlight": now.total(metric_table.BROKER_CALLS_IN_FLIGHT),
        "outboxBytes": now.total(metric_table.BROKER_OUTBOX_BYTES),
        "refused": now.total(metric_table.BROKER_REFUSED),
    }


def _database(now: Reading) -> dict[str, float]:
    return {
        "statements": now.total(metric_table.DATABASE_STATEMENTS),
        "conflicts": now.total(metric_table.DATABASE_CONFLICTS),
        "engineCalls": now.total(metric_table.DATABASE_ENGINE_CALLS),
        "heapUsed": now.total(metric_table.DATABASE_HEAP_USED),
        "heapMax": now.total(metric_table.DATABASE_HEAP_MAX),
    }
