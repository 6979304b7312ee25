"""Periods of a chunk: extracted at indexing time, stored as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ability_search.understanding.periods import Period
from ability_search.understanding.written_dates import written_periods

PERIODS_LIMIT: Final = 64
_MAX_DATE_LENGTH = 40
"""Maximum length of a metadata value that is tried as a date, in characters."""


def chunk_periods(
    *texts: str, metadata: Mapping[str, Any] | None = None, limit: int = PERIODS_LIMIT
) -> list[Period]:
    """Return the periods that a chunk is about.

    Args:
        texts: Its texts, most informative first: source, title, headings, content.
        metadata: Strings in it, also in lists, that consist of a single date count as well.
        limit: Maximum number of periods; the first ones found are returned.

    Returns:
        Without duplicates, each closed at both ends; empty for a chunk without dates.
    """
    found: dict[Period, None] = {}
    for text in _written(texts, metadata or {}):
        for each in written_periods(text, limit=limit):
            found[each.period] = None
            if len(found) == limit:
                return list(found)
    return list(found)


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


def _written(texts: Sequence[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts in order, metadata dates before the last text, which is the content."""
    yield from texts[:-1]
    for value in metadata.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, str) and len(item) <= _MAX_DATE_LENGTH and _is_date(item):
                yield item
    yield from texts[-1:]


def _is_date(text: str) -> bool:
    found = written_periods(text)
    return len(found) == 1 and text[found[0].start : found[0].end] == text.strip()
