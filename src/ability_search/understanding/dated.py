"""The periods of a chunk: found once when it is indexed, kept as numbers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ability_search.understanding.periods import Period
from ability_search.understanding.written import written_periods

PERIODS_LIMIT: Final = 64
_MAX_DATE_LENGTH = 40
"""Characters of a metadata value that may be a date."""


def chunk_periods(
    *texts: str, metadata: Mapping[str, Any] | None = None, limit: int = PERIODS_LIMIT
) -> list[Period]:
    """Find the periods that a chunk is about.

    Args:
        texts: What is written of it, the most telling first: source, title, headings, content.
        metadata: Strings in it, also in lists, that are a date and nothing else count as well.
        limit: Periods kept, the first ones found.

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
    """Write periods as ``[first, last, first, last, ...]``; those with an open end are left out."""
    return [
        end
        for period in periods
        if period.first is not None and period.last is not None
        for end in (period.first, period.last)
    ]


def from_numbers(numbers: Sequence[int]) -> list[Period]:
    """Read what :func:`to_numbers` wrote.

    Raises:
        ValueError: if it is not that.
    """
    return [Period(first, last) for first, last in zip(numbers[::2], numbers[1::2], strict=True)]


def _written(texts: Sequence[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Texts in order, the dates of the metadata before the last, which is the content."""
    yield from texts[:-1]
    for value in metadata.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, str) and len(item) <= _MAX_DATE_LENGTH and _is_date(item):
                yield item
    yield from texts[-1:]


def _is_date(text: str) -> bool:
    found = written_periods(text)
    return len(found) == 1 and text[found[0].start : found[0].end] == text.strip()
