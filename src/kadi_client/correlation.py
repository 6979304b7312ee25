"""Matching of outcomes to calls."""

from __future__ import annotations

from kadi_client.params import AbilityResponse


class OpenCalls:
    """Calls waiting for their outcome, by key and by request id.

    The caller chooses the request id. A broker may acknowledge a call under an id of its own; an
    outcome that overtakes the acknowledgement is kept while an acknowledgement is outstanding, up
    to ``max_bytes`` in total: then the oldest is dropped.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._unacknowledged: set[int] = set()
        self._key_of: dict[str, int] = {}
        self._request_of: dict[int, str] = {}
        self._max_bytes = max_bytes
        self._early: dict[str, AbilityResponse] = {}
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

    def acknowledge(self, key: int, request_id: str) -> AbilityResponse | None:
        """Record the request id under which the broker acknowledges a call.

        Returns:
            The outcome of the call if it arrived earlier.
        """
        outcome = self._drop(request_id)
        self._forget(key)
        self._key_of[request_id] = key
        self._request_of[key] = request_id
        self._settle(key)
        return outcome

    def key_of(self, outcome: AbilityResponse) -> int | None:
        """Return the key of the call with this outcome; ``None`` if it is unknown for now."""
        request_id = str(outcome.request_id)
        key = self._key_of.get(request_id)
        # Only an unacknowledged call can claim it later; if there is none, the answer is late.
        if key is None and self._unacknowledged:
            self._drop(request_id)
            self._early[request_id] = outcome
            self._early_bytes += _size(outcome)
            while self._early_bytes > self._max_bytes:
                self._drop(next(iter(self._early)))
        return key

    def end(self, key: int) -> str | None:
        """End a call and return its request id; ``None`` if the call is unknown."""
        self._settle(key)
        self._forget(key)
        return self._request_of.pop(key, None)

    def _forget(self, key: int) -> None:
        """Forget the request id of a call, unless another call has been acknowledged under it."""
        request_id = self._request_of.get(key, "")
        if self._key_of.get(request_id) == key:
            del self._key_of[request_id]

    def _settle(self, key: int) -> None:
        self._unacknowledged.discard(key)
        if not self._unacknowledged:
            self._early.clear()
            self._early_bytes = 0

    def _drop(self, request_id: str) -> AbilityResponse | None:
        outcome = self._early.pop(request_id, None)
        if outcome is not None:
            self._early_bytes -= _size(outcome)
        return outcome


def _size(outcome: AbilityResponse) -> int:
    """Return the bytes of an outcome, with some for the objects that hold it."""
    return len(outcome.result) + len(outcome.error) + 256
