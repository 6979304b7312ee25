"""One call of the embedded engine: what the waiting loop and the working thread share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from kadi_localnet.database.backend import Conflict, DatabaseError, engine_error

T = TypeVar("T")


class Stopped(DatabaseError):
    """Nobody waits for this call any more."""


class Ticket:
    """A call that can be ended from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._running: Any = None
        self._context = copy_context()

    def run(self, work: Callable[[Ticket], T]) -> T:
        """Do the work of the call, in whichever thread, as the task that made the ticket would.

        Its log lines name the call then.
        """
        return self._context.run(work, self)

    def stop(self) -> None:
        """End the call wherever it is; from any thread."""
        self._stopped.set()
        with self._lock:
            if self._running is not None:
                self._running.terminate("its caller")

    def check(self) -> None:
        """Raise if the call was stopped."""
        if self._stopped.is_set():
            raise Stopped("the call was stopped")

    def pause(self, seconds: float) -> None:
        """Wait, and raise as soon as the call is stopped."""
        self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def running(self, registry: Any, client: Any, database: str) -> Iterator[None]:
        """Make the statements of this thread stoppable."""
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
    """Translate a failure of the engine; ``need_retry`` is its class for lost transactions."""
    causes = list(_causes(exc))
    kinds = [str(cause.getClass().getSimpleName()) for cause in causes]
    error = engine_error(kinds[0], ": ".join(dict.fromkeys(messages(exc))))
    if "QueryTerminatedException" in kinds:
        return Stopped(str(error))
    if any(isinstance(cause, need_retry) for cause in causes):
        return Conflict(str(error))
    return error


def _causes(exc: Any) -> Iterator[Any]:
    """The exception and its causes, outermost first; ends in a cycle too."""
    for _ in range(16):
        if exc is None:
            return
        yield exc
        exc = exc.getCause()


def messages(exc: Any) -> Iterator[str]:
    """The texts of the exception and of its causes, outermost first."""
    for cause in _causes(exc):
        message = cause.getMessage()
        if message is not None:
            yield str(message)
