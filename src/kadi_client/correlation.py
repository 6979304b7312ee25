"""Matching of outcomes to calls."""

from __future__ import annotations

from collections import OrderedDict

from kadi_client.params import AbilityResponse

_EARLY_SECONDS = 30.0
_EARLY_BYTES = 256
"""Bytes of an outcome that is kept besides its result or error."""


class OpenCalls:
    """Calls waiting for their outcome, by key and by request id.

    The caller chooses the request id. A broker may acknowledge a call under an id of its own; an
    outcome that overtakes the acknowledgement is kept until it arrives, for 30 seconds, and up to
    ``max_bytes`` in total: then the oldest is dropped.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._unacknowledged: set[int] = set()
        self._key_of: dict[str, int] = {}
        self._request_of: dict[int, str] = {}
        self._max_bytes = max_bytes
        self._early: OrderedDict[str, tuple[float, AbilityResponse]] = OrderedDict()
        self._early_bytes = 0

    def __len__(self) -> int:
        return len(self._request_of)

    def __contains__(self, key: int) -> bool:
        return key in self._request_of

    def start(self, key: int, request_id: str) -> None:
        """Add a call with its request id."""
        self._unacknowledged.add(key)
        self._key_of[request_id] = key
        self._request_of[key] = request_id

    def acknowledge(self, key: int, request_id: str, now: float) -> AbilityResponse | None:
        """Record the request id under which the broker acknowledges a call.

        Returns:
            The outcome of the call if it arrived earlier.
        """
        outcome = None
        known = self._request_of[key]
        if known != request_id:
            self._expire(now)
            outcome = self._drop(request_id)
            del self._key_of[known]
            self._key_of[request_id] = key
            self._request_of[key] = request_id
        self._settle(key)
        return outcome

    def key_of(self, outcome: AbilityResponse, now: float) -> int | None:
        """Return the key of the call with this outcome; ``None`` if it is unknown for now."""
        request_id = str(outcome.request_id)
        key = self._key_of.get(request_id)
        # Only an unacknowledged call can claim it later; if there is none, the answer is late.
        if key is None and self._unacknowledged:
            self._drop(request_id)
            self._early[request_id] = (now + _EARLY_SECONDS, outcome)
            self._early_bytes += _size(outcome)
            self._expire(now)
        return key

    def end(self, key: int) -> str | None:
        """End a call and return its request id; ``None`` if the call is unknown."""
        self._settle(key)
        request_id = self._request_of.pop(key, None)
        if request_id is not None:
            del self._key_of[request_id]
        return request_id

    def _settle(self, key: int) -> None:
        self._unacknowledged.discard(key)
        if not self._unacknowledged:
            self._early.clear()
            self._early_bytes = 0

    def _expire(self, now: float) -> None:
        while self._early:
            request_id, (expires, _) = next(iter(self._early.items()))
            if expires > now and self._early_bytes <= self._max_bytes:
                return
            self._drop(request_id)

    def _drop(self, request_id: str) -> AbilityResponse | None:
        _, outcome = self._early.pop(request_id, (0.0, None))
        if outcome is not None:
            self._early_bytes -= _size(outcome)
        return outcome


def _size(outcome: AbilityResponse) -> int:
    return len(outcome.result) + len(outcome.error) + _EARLY_BYTES
