"""Rate limiting: a token bucket for each client address."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_ADDRESSES = 4096
"""Maximum number of buckets; the least recently used is dropped, and later starts full."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    """Time of the last update, on the caller's clock."""


class RateLimit:
    """Admits ``rate`` requests per second and address on average, and ``burst`` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Count a request at ``now``; return 0 to admit it, else the seconds to wait."""
        bucket = self._buckets.pop(address, None) or _Bucket(self._burst, now)
        self._buckets[address] = bucket
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        elapsed = max(0.0, now - bucket.filled)
        bucket.tokens = min(self._burst, bucket.tokens + elapsed * self._rate)
        bucket.filled = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._rate
        bucket.tokens -= 1
        return 0.0
