"""Long computations in a thread, in which callers take turns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from typing import Any, TypeVar

from kadi_client.context import caller
from kadi_client.slots import FairSlots

T = TypeVar("T")

_LITTLE = 400
"""Work up to which a computation takes only some milliseconds."""
_LARGE_CALLS = 2
"""Number of large calls at a time, one of each agent."""


class ComputeTurns:
    """One thread for computations that would hold the event loop.

    One is enough, as Python code of several threads does not run in parallel, and more of them
    would slow down the event loop. Of several callers, the one whose computations took the least
    time is next. What is cancelled before its turn is never computed. Not for several event loops.
    """

    def __init__(self) -> None:
        self._slots = FairSlots(1, max_waiting=sys.maxsize, share=1.0)
        self._large = FairSlots(_LARGE_CALLS, max_waiting=sys.maxsize, share=1.0, reserve=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")

    async def run(self, compute: Callable[[], T], *, work: int) -> T:
        """Return the result of a computation; much work is done in the thread.

        Args:
            compute: Returns the result.
            work: Estimated work, in candidates of a query.
        """
        if work <= _LITTLE:
            return compute()
        async with self._slots.slot(caller()):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, copy_context().run, compute)

    def call(self, *, work: int) -> AbstractAsyncContextManager[None]:
        """Run a call in the block; one of much work waits for its turn among those.

        So the candidates of a few large calls are in memory at a time, and their statements in the
        database, however many are made; one agent has one of them.
        """
        return self._large.slot(caller()) if work > _LITTLE else nullcontext()


def computed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine} waits")
