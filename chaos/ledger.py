"""What a campaign keeps: the log of its steps, the counts, the violations, the weather."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.callers import Outcome
from chaos.expectations import Violation
from chaos.steps import Step

GRACE_SECONDS = 3.0
"""How long after a recovery a call may still fail."""


class Weather:
    """Whether a fault is active: a call that begins and ends in the same calm must succeed."""

    def __init__(self) -> None:
        self.fault = ""
        self._epoch = 0
        self._calm_at = 0.0

    def begin(self, fault: str) -> None:
        """Record the beginning of a fault."""
        self.fault = fault
        self._epoch += 1

    def end(self) -> None:
        """Record the recovery from the fault."""
        self.fault = ""
        self._calm_at = time.monotonic() + GRACE_SECONDS

    def calm_since(self) -> float:
        """Return the time since when it is calm, of the monotonic clock; infinite in a fault."""
        return math.inf if self.fault else self._calm_at

    def epoch(self) -> int | None:
        """Return the number of the present calm; ``None`` if it is not calm."""
        if time.monotonic() < self.calm_since():
            return None
        return self._epoch


@dataclass
class Memory:
    """Resident memory of one process over time."""

    component: str
    pid: int
    times: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    """Searches in calm until each time."""

    def over_searches(self) -> dict[str, float]:
        """Return sizes and growth over the searches in calm; nothing if it saw too few of them.

        The first fifth, in which caches fill, is left out.
        """
        first, last = self.queries[0], self.queries[-1]
        kept = [
            (queries, size / 2**20)
            for queries, size in zip(self.queries, self.sizes, strict=True)
            if queries and queries >= first + (last - first) / 5
        ]
        if len(kept) < 10 or kept[-1][0] == kept[0][0]:
            return {}
        slope = statistics.linear_regression(*zip(*kept, strict=True)).slope
        return {
            "searches": last - first,
            "mibBeforeSearches": round(kept[0][1], 1),
            "mibAfterSearches": round(kept[-1][1], 1),
            "mibPer10000Searches": round(slope * 10_000, 2),
        }

    def slope(self) -> float | None:
        """Return the growth in MiB a minute over the second half; ``None`` under two minutes."""
        half = len(self.times) // 2
        times, sizes = self.times[half:], self.sizes[half:]
        if len(times) < 3 or self.times[-1] - self.times[0] < 120:
            return None
        return statistics.linear_regression(times, sizes).slope * 60 / 2**20


class Ledger:
    """The record of a campaign; every step becomes a line of JSON in ``file``."""

    def __init__(self, file: Path, header: Mapping[str, Any]) -> None:
        self.issued = 0
        self.violations: list[dict[str, Any]] = []
        self.operations: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.attacks: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.inputs: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Hostile inputs by kind and answer; without one they are ``unanswered``, and
        ``unavailable`` if the receiver could not look at them."""
        self.kills: Counter[str] = Counter()
        self.kills_while_starting = 0
        self.queries = 0
        """Searches in calm, at the end."""
        self.checks: Counter[str] = Counter()
        """What was compared with the model."""
        self.phases: dict[str, float] = {}
        """Seconds that each part of the campaign took."""
        self.notes: list[str] = []
        self.unknown = 0
        self.latency: defaultdict[str, list[float]] = defaultdict(list)
        self.restarts: defaultdict[str, list[float]] = defaultdict(list)
        self.recoveries: defaultdict[str, list[float]] = defaultdict(list)
        self.memory: dict[int, Memory] = {}
        self.weather = Weather()
        self._changed = asyncio.Condition()
        self._finished = False
        self._began = time.monotonic()
        self._file = file.open("w", encoding="utf-8")
        self._write(header)

    async def issue(self) -> int:
        """Count a step of a client as begun; return how many began before it."""
        async with self._changed:
            self.issued += 1
            self._changed.notify_all()
            return self.issued - 1

    async def reached(self, issued: int) -> bool:
        """Wait until that many steps of clients have begun; False if there are no more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._finished or self.issued >= issued)
            return self.issued >= issued

    async def finish(self) -> None:
        """Record that no client begins a step any more."""
        async with self._changed:
            self._finished = True
            self._changed.notify_all()

    def wrote(self, step: Step, after: int, outcome: str, seconds: float) -> None:
        """Write the line of a step."""
        others = {"faults": self.faults, "attacks": self.attacks, "inputs": self.batches}
        counts = others.get(step.actor, self.operations)
        counts[step.operation] += 1
        self._write(
            {
                "actor": step.actor,
                "step": step.number,
                "operation": step.operation,
                "digest": step.digest,
                "after": after,
                "outcome": outcome,
                "ms": round(seconds * 1e3),
                "at": round(time.monotonic() - self._began, 2),
            }
        )

    def called(self, transport: str, tool: str, outcome: Outcome, *, calm: bool) -> None:
        """Count a call of a client."""
        self.calls[f"{transport} {tool}"] += 1
        self.latency["calm" if calm else "faults"].append(outcome.seconds)
        if not outcome.ok:
            self.codes[outcome.code] += 1

    def sent(self, kind: str, answers: Mapping[str, int]) -> None:
        """Count hostile inputs by their answers."""
        self.inputs[kind].update(answers)

    @property
    def answered(self) -> int:
        """The number of hostile inputs whose answer was as it must be."""
        return sum(
            counts.total() - counts["unanswered"] - counts["unavailable"]
            for counts in self.inputs.values()
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record how long the block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = time.monotonic() - began

    def status(self) -> str:
        """Return the counts so far as one line."""
        return (
            f"{time.monotonic() - self._began:.0f} s: {self.issued} steps,"
            f" {self.kills.total()} kills,"
            f" {self.answered} hostile inputs, {self.queries} searches in calm,"
            f" {len(self.violations)} violations"
        )

    def violated(self, step: Step, violation: Violation) -> None:
        """Record a violation."""
        found = {
            "actor": step.actor,
            "step": step.number,
            "operation": step.operation,
            "parameters": step.parameters,
            "kind": violation.kind,
            "expected": violation.expected,
            "seen": violation.seen,
            "fault": self.weather.fault,
            "at": round(time.monotonic() - self._began, 2),
        }
        self.violations.append(found)
        self._write({"violation": found})

    def sampled(self, component: str, pid: int, size: int) -> None:
        """Record the resident memory of a component."""
        memory = self.memory.setdefault(pid, Memory(component, pid))
        memory.times.append(time.monotonic())
        memory.sizes.append(size)
        memory.queries.append(self.queries)

    def close(self) -> None:
        """Close the log."""
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return count, median, p95 and maximum; only the count of nothing."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 3),
        "p95": round(ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)], 3),
        "max": round(ordered[-1], 3),
    }
