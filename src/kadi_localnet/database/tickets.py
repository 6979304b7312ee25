"""Calls of the embedded engine that can be stopped from another thread."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kadi_localnet.database.backend import Conflict, DatabaseError, engine_error


class Stopped(DatabaseError):
    """The call was stopped, so nothing waits for its result."""


class Ticket:
    """A call that can be stopped from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._running: Any = None
        self._stopped_at = math.inf

    def stop(self) -> None:
        """Stop the call, waiting or running; thread-safe."""
        self._stopped.set()
        with self._lock:
            self._stopped_at = min(self._stopped_at, time.monotonic())
            if self._running is not None:
                self._running.terminate("its caller")

    @property
    def overdue(self) -> float:
        """Seconds for which the call has been running since it was stopped; 0 if it is not."""
        with self._lock:
            return 0.0 if self._running is None else max(0.0, time.monotonic() - self._stopped_at)

    def check(self) -> None:
        """Raise if the call was stopped."""
        if self._stopped.is_set():
            raise Stopped("the call was stopped")

    def pause(self, seconds: float) -> None:
        """Wait; raise as soon as the call is stopped."""
        self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def running(self, registry: Any, client: Any, database: str) -> Iterator[None]:
        """Make the statements of this thread stoppable during the block."""
        query = registry.open(database, None, "kadi", None, None, client)
        try:
            binding = query.bind()
            try:
                with self._lock:
                    self._running = query
                self.check()
                yield
            finally:
                with self._lock:
                    self._running = None
                binding.close()
        finally:
            query.close()


def translate(exc: Any, need_retry: Any) -> DatabaseError:
    """Translate a failure of the engine; ``need_retry`` is its class for conflicts."""
    causes = list(_causes(exc))
    kinds = [str(cause.getClass().getSimpleName()) for cause in causes]
    error = engine_error(kinds[0], ": ".join(dict.fromkeys(messages(exc))))
    if "QueryTerminatedException" in kinds:
        return Stopped(str(error))
    if any(isinstance(cause, need_retry) for cause in causes):
        return Conflict(str(error))
    return error


def _causes(exc: Any) -> Iterator[Any]:
    """Yield the exception and its causes, outermost first; limited, as they may form a cycle."""
    for _ in range(16):
        if exc is None:
            return
        yield exc
        exc = exc.getCause()


def messages(exc: Any) -> Iterator[str]:
    """Yield the messages of the exception and of its causes, outermost first."""
    for cause in _causes(exc):
        message = cause.getMessage()
        if message is not None:
            yield str(message)
