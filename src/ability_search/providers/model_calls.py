"""Requests to a model server: one attempt each, with a timeout and a circuit breaker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ability_search.errors import SearchError
from ability_search.providers.transports import Service, Transport
from kadi_client.errors import NoProvider, NotConnected, ProviderLost

log = logging.getLogger(__name__)

_MODELS = 64
"""Maximum number of failing models that the circuit breaker of a server knows."""


_AWAY = (NoProvider, ProviderLost, NotConnected)
"""Causes of a failure that is none of a server: there was none, or none could be reached."""


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
        self.breaker = CircuitBreaker(limit=breaker_failures, reset=breaker_reset)

    async def _ask(
        self,
        request: Mapping[str, Any],
        *,
        timeout: float,
        model: str | None = None,
        patience: float = 0.0,
    ) -> Any:
        """Return the answer to ``request`` within ``timeout`` seconds, or the client's if less.

        For ``patience`` seconds it waits while the circuit breaker is open.
        """
        service, chosen = self.service, model or self._model
        if chosen:
            request = {**request, "model": chosen}
        started = time.perf_counter()
        async with self.breaker.watching(chosen, service, patience=patience) as waited:
            most = min(timeout - waited, self._timeout)
            try:
                # A transport may apply the timeout to each of its steps, not to the whole request.
                async with asyncio.timeout(most):
                    answer = await self._transport(request, timeout=most)
            except TimeoutError as exc:
                await self._transport.check_offered(request)
                late = f"{service.who} did not answer within {most:.3g} s"
                raise service.unavailable(late, hint=service.hint("late")) from exc
        log.debug("%s took %.1f ms", service.tool, (time.perf_counter() - started) * 1e3)
        return answer


@dataclass(slots=True, eq=False)
class _Failing:
    """The state of a model whose last request failed."""

    last: SearchError
    """The last failure."""
    failures: int = 0
    """Number of consecutive failures."""
    closed_until: float = 0.0
    """Time from which a probe may be sent."""
    probing: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the next change."""

    def notify(self) -> None:
        """Wake the requests that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class CircuitBreaker:
    """A circuit breaker, which stops sending requests for a failing model to a server.

    Models fail independently. After ``limit`` consecutive failures the circuit of a model opens.
    After ``reset`` seconds one request is let through as a probe while the others wait for its
    outcome; another one follows every ``reset`` seconds until one succeeds.

    A model has a state from a failure until a success. At most 64 are kept; the oldest is dropped.
    """

    def __init__(
        self, *, limit: int, reset: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._reset = reset
        self._clock = clock
        self._failing: dict[str | None, _Failing] = {}

    @property
    def any_open(self) -> bool:
        """True if requests for a model are currently held back."""
        now = self._clock()
        return any(
            each.failures >= self._limit and (each.probing or each.closed_until > now)
            for each in self._failing.values()
        )

    @asynccontextmanager
    async def watching(
        self, model: str | None, service: Service, *, patience: float = 0.0
    ) -> AsyncIterator[float]:
        """Guard a request made in the block, and count its outcome.

        Yield the seconds that the request waited for the breaker. An error of the service that is
        not retryable (the server rejected the model, the key or the texts) counts as success, since
        the server responded. If there is no server, it has left, or the broker was lost, the
        circuit closes: the failures say nothing about the next server, and to find none costs
        little.

        Args:
            model: The requested model; ``None`` is the server's choice of a model.
            service: The service, whose error ``held`` is raised if the breaker is open.
            patience: Maximum seconds to wait until the request is let through. A request that
                would have to wait longer fails at once.
        """
        started, waited = self._clock(), 0.0
        if self._tripped(model):
            await self._admitted(model, started + patience, service)
            waited = self._clock() - started
        probed = self._tripped(model)
        if probed:
            probed.probing = True
        try:
            yield waited
        except service.unavailable as exc:
            if exc.retryable and not isinstance(exc.__cause__, _AWAY):
                self._failed(model, exc)
            else:
                self._forget(model)
            raise
        else:
            self._forget(model)
        finally:
            if probed:
                probed.probing = False
                probed.notify()

    def _tripped(self, model: str | None) -> _Failing | None:
        """Return the state of a model that has failed too often."""
        state = self._failing.get(model)
        return state if state and state.failures >= self._limit else None

    async def _admitted(self, model: str | None, deadline: float, service: Service) -> None:
        """Wait until a request is let through; raise an error if that is not before a time."""
        while state := self._tripped(model):
            now = self._clock()
            left = max(state.closed_until - now, 0.0)
            if not state.probing and not left:
                return
            # The outcome of a probe may come at any time before the deadline.
            needed = 0.0 if state.probing else left
            if now + needed >= deadline:
                raise service.kind("held")(
                    f"{service.who} failed {state.failures} times in a row;"
                    f" next request in {left:.1f} s; last: {state.last}",
                    hint=state.last.hint,
                    retry_after=left,
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(needed or deadline - now):
                    await state.changed.wait()

    def _forget(self, model: str | None) -> None:
        """Forget the failures of a model, and let the requests for it through."""
        if state := self._failing.pop(model, None):
            state.notify()

    def _failed(self, model: str | None, failure: SearchError) -> None:
        state = self._failing.get(model)
        if state is None:
            if len(self._failing) >= _MODELS:
                del self._failing[next(iter(self._failing))]
            state = self._failing[model] = _Failing(failure)
        state.failures += 1
        state.last = failure
        state.closed_until = self._clock() + self._reset
