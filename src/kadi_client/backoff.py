"""Delays between attempts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST_PAUSE = 24 * 3600.0


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Exponential backoff with full jitter.

    The n-th attempt in a row waits a uniformly random time between 0 and
    ``min(cap, base * 2**n)`` seconds, as in Brooker, "Exponential Backoff And Jitter", AWS
    Architecture Blog, 2015. A connection that lived for ``stable`` seconds resets the count.
    """

    base: float = 0.25
    cap: float = 30.0
    stable: float = 60.0
    uniform: Callable[[float, float], float] = random.uniform
    _attempts: int = 0

    def delay(self, lived: float) -> float:
        """Return the seconds to wait.

        ``lived`` is the lifetime of the last connection in seconds, 0 if the attempt failed.
        """
        if lived >= self.stable:
            self._attempts = 0
        # 2**32 times any sensible base exceeds any sensible cap, without overflowing a float.
        ceiling = min(self.cap, self.base * 2.0 ** min(self._attempts, 32))
        self._attempts += 1
        return self.uniform(0.0, ceiling)


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
