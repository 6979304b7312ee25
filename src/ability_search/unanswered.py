"""A record of what a call waits for, which is named in the error if its time is up.

A caller whose timeout is shorter than the patience of this worker would else never learn that the
database or a model is away. The record belongs to the context of the call, so that the tasks which
it starts share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_record: ContextVar[dict[str, None] | None] = ContextVar("unanswered", default=None)


@contextmanager
def recording() -> Iterator[dict[str, None]]:
    """Record what the block waits for in vain; yield it, in order and without duplicates."""
    record: dict[str, None] = {}
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


@contextmanager
def noting(what: str) -> Iterator[None]:
    """Note what a wait in the block was for, if it is cancelled; nothing outside of a call."""
    try:
        yield
    except asyncio.CancelledError:
        record = _record.get()
        if record is not None:
            record[what] = None
        raise
