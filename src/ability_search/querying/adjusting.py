"""Score adjustments of the ranking stages. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.config.schema import Ranking
from ability_search.querying.candidates import Plan
from ability_search.querying.model import Candidate, Query
from ability_search.understanding.periods import Period


@dataclass(frozen=True, slots=True)
class TimeSignal:
    """The dates that count in a query.

    Attributes:
        weight: Share of the score, 0 to 1.
        period: The days asked for; ``None`` if the query asks for a date and any date counts.
        sigma: Standard deviation, in days, of closeness to the period; 0 counts only the period.
    """

    weight: float
    period: Period | None
    sigma: float


@dataclass(frozen=True, slots=True)
class Context:
    """Input of the stages besides the candidates."""

    query: Query
    plan: Plan
    ranking: Ranking
    now: int
    """Time of the query, in epoch milliseconds."""
    time: TimeSignal | None = None


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A stage that changes scores.

    Attributes:
        name: name in ``explain``.
        columns: returns the candidate columns that it needs for a query; none if inactive.
        adjust: changes the scores of candidates, one block at a time.
    """

    name: str
    columns: Callable[[Query], Sequence[str]]
    adjust: Callable[[Sequence[Candidate], Context], None]


def blend(item: Candidate, stage: str, value: float, weight: float, **detail: Any) -> None:
    """Make ``value`` a share of the score: ``(1 - weight) score + weight value``, all in [0, 1]."""
    adjust(item, stage, (1 - weight) * item.score + weight * value, **detail)


def scale(item: Candidate, stage: str, factor: float, **detail: Any) -> None:
    """Multiply the score by a factor in [0, 1]."""
    adjust(item, stage, item.score * factor, **detail)


def adjust(item: Candidate, stage: str, score: float, **detail: Any) -> None:
    """Set the score, and record the previous one for ``explain``."""
    item.trace[stage] = {"before": item.score, "after": score, **detail}
    item.score = score


def best_first(items: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by score, highest first; ties by chunkId."""
    return sorted(items, key=lambda item: (-item.score, item.chunk_id))


def put_behind(items: Sequence[Candidate], first: Sequence[Candidate], stage: str) -> None:
    """Scale the scores of ``items`` by one factor so that all are below those of ``first``.

    Scores cannot fall below 0.
    """
    if not items or not first:
        return
    best = max(item.score for item in items)
    below = math.nextafter(min(item.score for item in first), 0.0)
    for item in items:
        score = min(below, item.score * below / best) if best > below else item.score
        adjust(item, stage, score)
