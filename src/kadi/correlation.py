"""Results that overtook the acknowledgement of their call."""

from __future__ import annotations

from collections import OrderedDict

from kadi.params import AbilityResponse


class EarlyResults:
    """A bounded, expiring buffer of ``kadi.ability.response`` params by their request id.

    The oldest go first when ``max_count`` or ``max_bytes`` is exceeded, and all after ``ttl``
    seconds.
    """

    def __init__(
        self, *, max_count: int = 256, max_bytes: int = 32 * 1024 * 1024, ttl: float = 30.0
    ) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._held: OrderedDict[str, tuple[float, AbilityResponse]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def put(self, outcome: AbilityResponse, now: float) -> None:
        """Keep an outcome; a second one for the same request id replaces the first."""
        request_id = str(outcome.request_id)
        self._drop(request_id)
        self._held[request_id] = (now + self._ttl, outcome)
        self._bytes += _size(outcome)
        self._expire(now)
        while len(self._held) > self._max_count or self._bytes > self._max_bytes:
            self._drop(next(iter(self._held)))

    def take(self, request_id: str, now: float) -> AbilityResponse | None:
        """Remove and return what is held for a request id."""
        self._expire(now)
        return self._drop(request_id)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._bytes = 0

    def _expire(self, now: float) -> None:
        while self._held:
            request_id, (expires, _) = next(iter(self._held.items()))
            if expires > now:
                return
            self._drop(request_id)

    def _drop(self, request_id: str) -> AbilityResponse | None:
        held = self._held.pop(request_id, None)
        if held is None:
            return None
        self._bytes -= _size(held[1])
        return held[1]


def _size(outcome: AbilityResponse) -> int:
    return len(outcome.result) + len(outcome.error)
