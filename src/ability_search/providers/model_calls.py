"""Requests to models during a query: one attempt, with a timeout and a circuit breaker."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from ability_search.providers.circuit_breaker import CircuitBreaker
from ability_search.providers.transports import Service, Transport, in_time

log = logging.getLogger(__name__)


class Consulted:
    """A client of a model server that queries wait for.

    Because a query waits, a request is not retried, and a circuit breaker skips a failing server.

    Args:
        transport: Sends requests to the server.
        model: Default model; ``None`` leaves the choice to the server.
        timeout: Maximum time for a request in seconds.
        breaker_failures: Consecutive failures after which requests fail at once.
        breaker_reset: Seconds until a request is let through again.
    """

    service: ClassVar[Service]
    who: ClassVar[str]
    """Name of the server in errors."""

    def __init__(
        self,
        transport: Transport,
        *,
        model: str | None,
        timeout: float,
        breaker_failures: int,
        breaker_reset: float,
    ) -> None:
        self._transport = transport
        self._model = model
        self._timeout = timeout
        self.breaker = CircuitBreaker(limit=breaker_failures, reset=breaker_reset)

    async def _ask(self, request: Mapping[str, Any], *, model: str | None, timeout: float) -> Any:
        """Return the answer to ``request`` within ``timeout`` seconds, or the client's if less."""
        if chosen := model or self._model:
            request = {**request, "model": chosen}
        most = min(timeout, self._timeout)
        late = self.service.unavailable(f"{self.who} did not answer within {most:.3g} s")
        started = time.perf_counter()
        with self.breaker.watching(self.service.unavailable, self.who):
            answer = await in_time(self._transport, request, timeout=most, late=late)
        log.debug("%s took %.1f ms", self.service.tool, (time.perf_counter() - started) * 1e3)
        return answer
