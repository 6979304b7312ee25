"""Growth of a collection by periods of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

HOUR = 3_600_000
"""In milliseconds, as all durations here."""
DAY = 24 * HOUR
_HOURLY = 3 * DAY
"""Longest history that is counted by the hour."""

Unit = Literal["hour", "day", "week", "month", "year"]


@dataclass(frozen=True, slots=True)
class Period:
    """Counts of one period of time, which begins at ``start``, in epoch milliseconds."""

    start: int
    sources: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Periods of length ``unit`` in order, in UTC, without empty ones.

    A week begins on Monday.
    """

    unit: Unit
    periods: tuple[Period, ...]


def finest(begun: int, updated: int) -> int:
    """Return the initial period length: an hour if the collection was filled quickly, or a day."""
    return HOUR if updated - begun <= _HOURLY else DAY


def grown(periods: Sequence[Period], *, period: int, most: int) -> Growth:
    """Merge periods into at most ``most``, of the shortest unit for which they suffice.

    Args:
        periods: Any number of periods of one length, in any order.
        period: That length, an hour or a day.
        most: Maximum number of periods; exceeded only if there are more years.
    """
    for unit, beginning in _BEGINNINGS.items():
        if unit == "hour" and period > HOUR:
            continue
        merged = _merged(periods, beginning)
        if len(merged) <= most:
            break
    return Growth(unit, tuple(merged[start] for start in sorted(merged)))


def _merged(
    periods: Sequence[Period], beginning: Callable[[datetime], datetime]
) -> Mapping[int, Period]:
    merged: dict[int, Period] = {}
    for each in periods:
        moment = datetime.fromtimestamp(each.start / 1000, tz=UTC).replace(minute=0, second=0)
        start = round(beginning(moment).timestamp() * 1000)
        known = merged.get(start, Period(start, 0, 0))
        merged[start] = Period(start, known.sources + each.sources, known.chunks + each.chunks)
    return merged


def _week(moment: datetime) -> datetime:
    return moment.replace(hour=0) - timedelta(days=moment.weekday())


_BEGINNINGS: Mapping[Unit, Callable[[datetime], datetime]] = {
    "hour": lambda moment: moment,
    "day": lambda moment: moment.replace(hour=0),
    "week": _week,
    "month": lambda moment: moment.replace(day=1, hour=0),
    "year": lambda moment: moment.replace(month=1, day=1, hour=0),
}
"""Start of the unit that contains an hour, by unit, shortest first."""
