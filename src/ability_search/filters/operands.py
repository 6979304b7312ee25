"""Validation and normalization of filter operands."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from ability_search.errors import InvalidInput
from ability_search.filters.tree import Scalar

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
"""Integers in the database are 64 bits wide."""

_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[Tt ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)(Z|z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY_MS = 86_400_000


def checked_text(at: str, value: object, max_length: int) -> str:
    """Return a string of at most ``max_length`` characters that can be encoded as UTF-8.

    Raises:
        InvalidInput: for the field ``at``.
    """
    if not isinstance(value, str):
        raise InvalidInput(at, f"is {json_type(value)}, not a string")
    if len(value) > max_length:
        raise InvalidInput(at, f"has {len(value)} characters, at most {max_length} are accepted")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInput(at, "holds a lone surrogate, which is not valid Unicode text") from exc
    return value


def _checked_number(at: str, value: int | float) -> int | float:
    """Return a finite number of at most 64 bits; a whole one as ``int``."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(at, "is not a finite number")
        return int(value) if value.is_integer() and _LONG_MIN <= value < _LONG_MAX else value
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise InvalidInput(
            at, "is a whole number of more than 64 bits", hint="Give it as a string."
        )
    return value


def checked_scalar(at: str, value: object, max_length: int) -> Scalar:
    """Return a string, a number or a boolean.

    Raises:
        InvalidInput: for the field ``at``.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _checked_number(at, value)
    if isinstance(value, str):
        return checked_text(at, value, max_length)
    raise InvalidInput(at, f"is {json_type(value)}, not a string, a number or a boolean")


def instants(at: str, value: object) -> tuple[int, int]:
    """Parse an RFC 3339 instant, or a date, which stands for the whole day in UTC.

    Returns:
        The first millisecond since 1970-01-01T00:00Z that it covers, and the first after it.

    Raises:
        InvalidInput: for the field ``at``.
    """
    found = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidInput(
            at,
            "is not a date or an instant",
            hint="Write 2024-05-01, or 2024-05-01T10:30:00Z, or with an offset such as +02:00.",
        )
    date, time, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{time or '00:00'}{(offset or 'Z').upper()}")
    except ValueError as exc:
        raise InvalidInput(at, f"is not a date that exists ({exc})") from exc
    start = (moment - _EPOCH) // _MILLISECOND
    return start, start + (1 if time else _DAY_MS)


def json_type(value: object) -> str:
    """Return the name of a JSON value's type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list | tuple) else "an object"
