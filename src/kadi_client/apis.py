"""What HTTP APIs of models have in common: where their routes are, and when to come back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_VERSION = re.compile(r"/v\d+$")
_LONGEST_PAUSE = 24 * 3600.0


def route_address(url: str, route: str) -> str:
    """The address of a route below a base URL: ``/v1/<route>`` is appended unless present.

    A version at its end is kept: ``/v2``, as Cohere's, becomes ``/v2/<route>``.
    """
    base = url.rstrip("/")
    if base.endswith(f"/{route}"):
        return base
    return f"{base}/{route}" if _VERSION.search(base) else f"{base}/v1/{route}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, whether as a number or as a date (RFC 9110).

    At most a day, at least 0; ``None`` without the header, or if it is neither.
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
