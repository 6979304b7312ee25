"""A circuit breaker, which stops sending requests to a failing server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ability_search.errors import SearchError


class CircuitBreaker:
    """A circuit breaker for requests to one server.

    After ``limit`` consecutive failures it opens and requests fail at once. After ``reset``
    seconds one request is let through as a probe, and another one every ``reset`` seconds until
    one succeeds.

    Attributes:
        failures: Number of consecutive failures.
    """

    def __init__(
        self, *, limit: int, reset: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failures = 0
        self._limit = limit
        self._reset = reset
        self._clock = clock
        self._closed_until = 0.0

    @property
    def is_open(self) -> bool:
        """True if requests are currently refused."""
        return self.failures >= self._limit and self._closed_until > self._clock()

    def wait(self) -> float:
        """Return the seconds until the next request is allowed; 0 lets this request through."""
        if self.failures < self._limit:
            return 0.0
        left = self._closed_until - self._clock()
        if left <= 0:
            self._closed_until = self._clock() + self._reset
        return max(left, 0.0)

    @contextmanager
    def watching(
        self,
        unavailable: type[SearchError],
        who: str,
        *,
        held_back: type[SearchError] | None = None,
    ) -> Iterator[None]:
        """Guard a request made in the block, and count its outcome.

        Args:
            unavailable: The error that the block raises on failure. An error that is not retryable
                (the server rejected the model, the key or the texts) counts as success, since the
                server responded.
            who: Name of the server, for the text of the error.
            held_back: The error to raise if the breaker is open; ``unavailable`` if not given.
        """
        if wait := self.wait():
            raise (held_back or unavailable)(
                f"{who} failed {self.failures} times in a row; next request in {wait:.1f} s",
                retry_after=wait,
            )
        try:
            yield
        except unavailable as exc:
            if exc.retryable:
                self.failed()
            else:
                self.succeeded()
            raise
        self.succeeded()

    def succeeded(self) -> None:
        """Record a success."""
        self.failures = 0

    def failed(self) -> None:
        """Record a failure."""
        self.failures += 1
        if self.failures >= self._limit:
            self._closed_until = self._clock() + self._reset
