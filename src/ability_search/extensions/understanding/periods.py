"""Periods of days, their encoding as numbers, and the index keys of chunks within them.

A day is the number of days since 1970-01-01 in the proleptic Gregorian calendar, in UTC. Years
1 to 9999 are supported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000

NEAR_DAYS: Final = 15
"""Days around a period that count as near it: the standard deviation of the proximity."""
MONTHS_LIMIT: Final = 9
"""Maximum months of a period with month keys; a longer one has year keys only."""
YEARS_LIMIT: Final = 40


@dataclass(frozen=True, slots=True)
class Period:
    """The days from ``first`` to ``last``, both included; an end that is ``None`` is open.

    Raises:
        ValueError: if it ends before it begins.
    """

    first: int | None
    last: int | None

    def __post_init__(self) -> None:
        if self.first is not None and self.last is not None and self.first > self.last:
            raise ValueError("a period must not end before it begins")

    def to(self, other: Period) -> Period:
        """Return the span from this period to ``other``, in either order."""
        if self.first is not None and other.last is not None and self.first > other.last:
            return Period(other.first, self.last)
        return Period(self.first, other.last)


def day_of(now: int) -> int:
    """Return the day of an instant in epoch milliseconds."""
    return now // _DAY_MS


def date_of(day: int) -> date:
    """Return the date of a day number.

    Raises:
        ValueError: if it lies outside the years 1 to 9999.
    """
    return date.fromordinal(day + _EPOCH)


def iso_day(day: int) -> str:
    """Format a day as ``2026-03-12``; days outside the years 1 to 9999 are clamped."""
    return _clamped(day).isoformat()


def one_day(year: int, month: int, day: int) -> Period:
    """Return a single day.

    Raises:
        ValueError: if there is no such day.
    """
    number = date(year, month, day).toordinal() - _EPOCH
    return Period(number, number)


def months(year: int, month: int, count: int = 1) -> Period:
    """Return ``count`` whole months from ``month`` of ``year`` on.

    ``month`` may lie outside 1 to 12: 0 is December of the year before, 13 January of the next.

    Raises:
        ValueError: if the period leaves the years 1 to 9998.
    """
    return Period(_first_of(year, month), _first_of(year, month + count) - 1)


def to_numbers(periods: Iterable[Period]) -> list[int]:
    """Encode periods as ``[first, last, first, last, ...]``; open periods are left out."""
    return [
        end
        for period in periods
        if period.first is not None and period.last is not None
        for end in (period.first, period.last)
    ]


def from_numbers(numbers: Sequence[int]) -> list[Period]:
    """Decode the result of :func:`to_numbers`.

    Raises:
        ValueError: if ``numbers`` is anything else.
    """
    return [Period(first, last) for first, last in zip(numbers[::2], numbers[1::2], strict=True)]


def buckets(periods: Iterable[Period]) -> list[str]:
    """Return the keys under which a chunk with these periods is stored: ``2026-03``, ``2026``.

    One key for each year that a period touches, at most :data:`YEARS_LIMIT`, and for each month
    unless the period is longer than :data:`MONTHS_LIMIT` months: a text about a whole year is not
    about its March. Sorted, without duplicates; open periods do not occur in texts and give no
    keys.
    """
    keys: set[str] = set()
    for period in periods:
        if period.first is not None and period.last is not None:
            keys.update(_years(period.first, period.last))
            keys.update(_months(period.first, period.last))
    return sorted(keys)


def buckets_of_query(period: Period) -> list[str]:
    """Return the keys of chunks in or near a period; a chunk must have at least one of them.

    The months of the period and of :data:`NEAR_DAYS` around it; its years if that is longer than
    :data:`MONTHS_LIMIT` months. At most :data:`YEARS_LIMIT` keys: those next to the end that is
    not open, else the latest.
    """
    first, last, span = period.first, period.last, (YEARS_LIMIT - 1) * 365
    if first is not None and last is not None:
        return _months(first - NEAR_DAYS, last + NEAR_DAYS) or _years(first, last)
    if first is not None:
        return _years(first, first + span)
    return [] if last is None else _years(last - span, last)


def _first_of(year: int, month: int) -> int:
    years, index = divmod(month - 1, 12)
    return date(year + years, index + 1, 1).toordinal() - _EPOCH


def _months(first: int, last: int) -> list[str]:
    """Return the keys of the months touched; empty if they are too many."""
    low, high = (each.year * 12 + each.month - 1 for each in (_clamped(first), _clamped(last)))
    if high - low > MONTHS_LIMIT:
        return []
    return [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(low, high + 1)]


def _years(first: int, last: int) -> list[str]:
    """Return the keys of the years touched, the latest if they are too many."""
    low, high = _clamped(first).year, _clamped(last).year
    return [f"{year:04d}" for year in range(max(low, high - YEARS_LIMIT + 1), high + 1)]


def _clamped(day: int) -> date:
    return date.fromordinal(min(max(day + _EPOCH, 1), date.max.toordinal()))
