"""A circuit breaker: a server that keeps failing is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ability_search.errors import SearchError


class CircuitBreaker:
    """Stops asking a server that keeps failing.

    After ``limit`` failures in a row every request is to be held back, until ``reset`` seconds
    have passed; then one request is let through to try, and after as many seconds the next.

    Attributes:
        failures: how many there were in a row.
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
        """Whether requests are held back at the moment."""
        return self.failures >= self._limit and self._closed_until > self._clock()

    def wait(self) -> float:
        """Seconds for which the server is to be left alone; 0 lets this request through."""
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
        """Make a request in the block, and note how it ends.

        Args:
            unavailable: What the block raises if there is no answer; one that is not retryable
                (a model, a key or texts that a server objects to) shows that the server is there.
            who: Is left alone, for the text of the error.
            held_back: What is raised instead of making the request; ``unavailable`` if not given.
        """
        if wait := self.wait():
            raise (held_back or unavailable)(
                f"{who} failed {self.failures} times in a row, it is left alone for {wait:.1f} s",
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
        """Note an answer."""
        self.failures = 0

    def failed(self) -> None:
        """Note a failure."""
        self.failures += 1
        if self.failures >= self._limit:
            self._closed_until = self._clock() + self._reset
