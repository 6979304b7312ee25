"""Exceptions of the embedded engine in the words of the backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kadi_localnet.database.backend import Conflict, DatabaseError, engine_error
from kadi_localnet.database.calls import Stopped


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
