"""Conventions common to HTTP APIs of models: route addresses and Retry-After."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_VERSION = re.compile(r"/v\d+$")
_LONGEST_PAUSE = 24 * 3600.0


def route_address(url: str, route: str) -> str:
    """Return the address of a route: ``/v1/<route>`` is appended to the base URL unless present.

    A version at the end of the base URL is kept: ``/v2`` (Cohere) becomes ``/v2/<route>``.
    """
    base = url.rstrip("/")
    if base.endswith(f"/{route}"):
        return base
    return f"{base}/{route}" if _VERSION.search(base) else f"{base}/v1/{route}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, given as a number or as a date (RFC 9110).

    At least 0 and at most a day; ``None`` if the header is missing or malformed.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), _LONGEST_PAUSE)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    left = (moment - datetime.now(UTC)).total_seconds()
    return min(max(0.0, left), _LONGEST_PAUSE)
