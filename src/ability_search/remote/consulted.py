"""Models that a query in progress consults: asked once, within a time, unless they keep failing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from ability_search.remote.breaker import CircuitBreaker
from ability_search.remote.transports import Service, Transport

log = logging.getLogger(__name__)


class Consulted:
    """A server of models that a query waits for.

    So a request is made once, and a server that keeps failing is left alone.

    Args:
        transport: Brings requests to the server.
        model: The default; ``None`` leaves the choice to the server.
        timeout: Longest wait for a request, in seconds.
        breaker_failures: Failures in a row after which requests fail at once.
        breaker_reset: Seconds until a request is let through again.
    """

    service: Service
    who: str
    """What the server is called in errors."""

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
        """The answer to ``request``, within ``timeout`` seconds and the server's own time."""
        if chosen := model or self._model:
            request = {**request, "model": chosen}
        started = time.perf_counter()
        with self.breaker.watching(self.service.unavailable, self.who):
            answer = await self._in_time(request, min(timeout, self._timeout))
        log.debug("%s took %.1f ms", self.service.tool, (time.perf_counter() - started) * 1e3)
        return answer

    async def _in_time(self, request: Mapping[str, Any], timeout: float) -> Any:
        try:
            # Transports may bound each step of theirs only, not the whole.
            async with asyncio.timeout(timeout):
                return await self._transport(request, timeout=timeout)
        except TimeoutError as exc:
            raise self.service.unavailable(
                f"{self.who} did not answer within {timeout:.3g} s"
            ) from exc
