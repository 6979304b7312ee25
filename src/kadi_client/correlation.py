"""Matching of outcomes to calls."""

from __future__ import annotations

from collections import OrderedDict

from kadi_client.params import AbilityResponse


class OpenCalls:
    """Calls waiting for their outcome, by key and by request id.

    The caller chooses the request id. A broker may acknowledge a call under an id of its own; an
    outcome that overtakes the acknowledgement is kept until it arrives, up to ``max_bytes`` in
    total.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._unacknowledged: set[int] = set()
        self._key_of: dict[str, int] = {}
        self._request_of: dict[int, str] = {}
        self._early = EarlyResults(max_bytes=max_bytes)

    def __len__(self) -> int:
        return len(self._request_of)

    def start(self, key: int, request_id: str) -> None:
        """Add a call with its request id."""
        self._unacknowledged.add(key)
        self._bind(key, request_id)

    def acknowledge(self, key: int, request_id: str, now: float) -> AbilityResponse | None:
        """Record the request id under which the broker acknowledges a call.

        Returns:
            The outcome of the call if it arrived earlier; the call has then ended.
        """
        known = self._request_of.get(key)
        outcome = None
        if known is not None and known != request_id:
            outcome = self._early.take(request_id, now)
            del self._key_of[known]
            self._bind(key, request_id)
        self._settle(key)
        if outcome is not None:
            self.end(key)
        return outcome

    def conclude(self, outcome: AbilityResponse, now: float) -> int | None:
        """End the call with this outcome and return its key; ``None`` if the call is unknown."""
        key = self._key_of.get(str(outcome.request_id))
        if key is not None:
            self.end(key)
        # Only an unacknowledged call can claim it later; if there is none, the answer is late.
        elif self._unacknowledged:
            self._early.put(outcome, now)
        return key

    def end(self, key: int) -> str | None:
        """End a call and return its request id; ``None`` if the call is unknown."""
        self._settle(key)
        request_id = self._request_of.pop(key, None)
        if request_id is not None:
            self._key_of.pop(request_id, None)
        return request_id

    def _bind(self, key: int, request_id: str) -> None:
        self._key_of[request_id] = key
        self._request_of[key] = request_id

    def _settle(self, key: int) -> None:
        self._unacknowledged.discard(key)
        if not self._unacknowledged:
            self._early.clear()


class EarlyResults:
    """A bounded, expiring buffer of ``kadi.ability.response`` params by request id.

    The oldest entries are dropped when ``max_count`` or ``max_bytes`` is exceeded; every entry
    expires after ``ttl`` seconds.
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
        """Remove and return the outcome for a request id; ``None`` if there is none."""
        self._expire(now)
        return self._drop(request_id)

    def clear(self) -> None:
        """Remove all outcomes."""
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
