"""Requests to a model server: one attempt each, with a timeout and circuit breakers by model."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

from ability_search.errors import SearchError
from ability_search.providers.transports import Service, Transport

log = logging.getLogger(__name__)

_MODELS = 64
"""Maximum number of models with a circuit breaker of their own."""


class ModelClient:
    """A client of a model server.

    Args:
        transport: Sends requests to the server.
        timeout: Maximum time for a request in seconds.
        breaker_failures: Consecutive failures of a model after which its circuit breaker opens.
        breaker_reset: Seconds until a request is let through again.
        model: Default model; ``None`` leaves the choice to the server.
    """

    service: ClassVar[Service]
    who: ClassVar[str]
    """Name of the server in errors."""
    held_back: ClassVar[type[SearchError] | None] = None
    """The error if the circuit breaker is open; that of the service by default."""
    late_hint: ClassVar[str | None] = None
    """The hint if there is no answer in time; that of the error by default."""
    patient: ClassVar[bool] = False
    """True if a request waits for an open circuit breaker, within its timeout."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout: float,
        breaker_failures: int,
        breaker_reset: float,
        model: str | None = None,
    ) -> None:
        self._transport = transport
        self._model = model
        self._timeout = timeout
        self.breakers = CircuitBreakers(limit=breaker_failures, reset=breaker_reset)

    async def _ask(
        self, request: Mapping[str, Any], *, timeout: float, model: str | None = None
    ) -> Any:
        """Return the answer to ``request`` within ``timeout`` seconds, or the client's if less."""
        chosen = model or self._model
        if chosen:
            request = {**request, "model": chosen}
        breaker = self.breakers.of_model(chosen)
        most = min(timeout, self._timeout)
        patience = timeout if self.patient else 0.0
        started = time.perf_counter()
        async with breaker.watching(
            self.service.unavailable, self.who, held_back=self.held_back, patience=patience
        ) as waited:
            most = min(most, timeout - waited)
            try:
                # A transport may apply the timeout to each of its steps, not to the whole request.
                async with asyncio.timeout(most):
                    answer = await self._transport(request, timeout=most)
            except TimeoutError as exc:
                late = f"{self.who} did not answer within {most:.3g} s"
                raise self.service.unavailable(late, hint=self.late_hint) from exc
        log.debug("%s took %.1f ms", self.service.tool, (time.perf_counter() - started) * 1e3)
        return answer


class CircuitBreaker:
    """A circuit breaker, which stops sending requests to a failing server.

    After ``limit`` consecutive failures it opens. After ``reset`` seconds one request is let
    through as a probe while the others wait for its outcome; another one follows every ``reset``
    seconds until one succeeds.

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
        self._probing = False
        self._changed = asyncio.Event()
        self._last: SearchError | None = None

    @property
    def is_open(self) -> bool:
        """True if requests are currently held back."""
        return self.failures >= self._limit and (
            self._probing or self._closed_until > self._clock()
        )

    @asynccontextmanager
    async def watching(
        self,
        unavailable: type[SearchError],
        who: str,
        *,
        held_back: type[SearchError] | None = None,
        patience: float = 0.0,
    ) -> AsyncIterator[float]:
        """Guard a request made in the block, and count its outcome.

        Yield the seconds that the request waited for the breaker.

        Args:
            unavailable: The error that the block raises on failure. An error that is not retryable
                (the server rejected the model, the key or the texts) counts as success, since the
                server responded.
            who: Name of the server, for the text of the error.
            held_back: The error if the breaker is open; ``unavailable`` by default.
            patience: Maximum seconds to wait until the request is let through. A request that
                would have to wait longer fails at once.
        """
        started, waited, wait = self._clock(), 0.0, None
        if self.failures >= self._limit:
            wait = await self._admitted(started + patience)
            waited = self._clock() - started
        if wait is not None:
            raise (held_back or unavailable)(
                f"{who} failed {self.failures} times in a row; next request in {wait:.1f} s"
                + (f"; last: {self._last}" if self._last else ""),
                hint=self._last.hint if self._last else None,
                retry_after=wait,
            )
        probe = self._probing = self.failures >= self._limit
        try:
            yield waited
        except unavailable as exc:
            if exc.retryable:
                self.failed()
                self._last = exc
            else:
                self.succeeded()
            raise
        else:
            self.succeeded()
        finally:
            if probe:
                self._probing = False
            self._notify()

    async def _admitted(self, deadline: float) -> float | None:
        """Return ``None`` when a request is let through, or the seconds until one may be."""
        while self.failures >= self._limit:
            now = self._clock()
            left = self._closed_until - now
            if not self._probing and left <= 0:
                return None
            # The outcome of a probe may come at any time before the deadline.
            needed = max(left, 0.0) if not self._probing else 0.0
            if now + needed >= deadline:
                return max(left, 0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(needed or deadline - now):
                    await self._changed.wait()
        return None

    def _notify(self) -> None:
        """Wake the requests that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def succeeded(self) -> None:
        """Record a success."""
        self.failures = 0

    def failed(self) -> None:
        """Record a failure."""
        self.failures += 1
        if self.failures >= self._limit:
            self._closed_until = self._clock() + self._reset


class CircuitBreakers:
    """The circuit breakers of a server, one for each model, so that models fail independently.

    At most 64 are kept. The least recently used one without failures is dropped first; if all
    have failures, the least recently used one.

    Args:
        limit: Consecutive failures after which a breaker opens.
        reset: Seconds until an open breaker lets a request through.
    """

    def __init__(
        self, *, limit: int, reset: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._reset = reset
        self._clock = clock
        self._by_model: dict[str | None, CircuitBreaker] = {}

    def __len__(self) -> int:
        return len(self._by_model)

    @property
    def any_open(self) -> bool:
        """True if requests to a model are currently held back."""
        return any(breaker.is_open for breaker in self._by_model.values())

    def of_model(self, model: str | None) -> CircuitBreaker:
        """Return the breaker of a model; ``None`` is the server's choice of a model."""
        breaker = self._by_model.pop(model, None)
        if breaker is None:
            breaker = CircuitBreaker(limit=self._limit, reset=self._reset, clock=self._clock)
            if len(self._by_model) >= _MODELS:
                idle = (name for name, each in self._by_model.items() if not each.failures)
                del self._by_model[next(idle, next(iter(self._by_model)))]
        self._by_model[model] = breaker
        return breaker
