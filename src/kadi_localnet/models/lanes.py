"""Threads that run model work: single queries first, bulk requests in turns.

A request is a sequence of small units. Between two units a thread looks again at what is waiting,
so a query never waits for the rest of an indexing job, two jobs share the threads evenly, and
work that nobody waits for any more ends with the unit it is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_BULK_NICENESS = 10


class LanesClosed(Exception):
    """The threads were stopped before the work was done."""


class Lanes:
    """``bulk_threads`` threads for anything, and one more that takes urgent units only."""

    def __init__(self, *, bulk_threads: int) -> None:
        self._wake = threading.Condition()
        self._urgent: deque[_Flow] = deque()
        self._bulk: deque[_Flow] = deque()
        self._open: set[_Flow] = set()
        self._closed = False
        self._threads = [
            threading.Thread(
                target=self._serve, args=(index == 0,), name=f"models-{index}", daemon=True
            )
            for index in range(bulk_threads + 1)
        ]

    def start(self) -> None:
        """Start the threads; once."""
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Refuse new work, fail what waits with :class:`LanesClosed` and end the threads.

        Returns when the units that are running have ended.
        """
        with self._wake:
            self._closed = True
            self._urgent.clear()
            self._bulk.clear()
            self._wake.notify_all()
        for flow in list(self._open):
            flow.fail(LanesClosed("the model manager is closing"))
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def run(self, units: Sequence[Callable[[], T]], *, urgent: bool = False) -> list[T]:
        """Run ``units`` in the threads; none is not an error.

        Returns:
            Their results, in the order of the units.

        Raises:
            LanesClosed: if the lanes are closed before the last unit is done.
            Exception: the first failure of a unit; the units not yet begun are dropped, as they
                are when the waiting task is cancelled.
        """
        if not units:
            return []
        flow = _Flow(units)
        queue = self._urgent if urgent else self._bulk
        with self._wake:
            if self._closed:
                raise LanesClosed("the model manager is closing")
            queue.append(flow)
            self._wake.notify_all()
        self._open.add(flow)
        try:
            return await flow.done
        finally:
            self._open.discard(flow)
            with self._wake, contextlib.suppress(ValueError):
                queue.remove(flow)

    def _serve(self, urgent_only: bool) -> None:
        if not urgent_only and sys.platform == "linux":
            # There, niceness is a thread's own. A query beside two bulk threads on two cores:
            # 4.9 ms instead of 8.3 ms.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BULK_NICENESS)
        while (taken := self._take(urgent_only)) is not None:
            flow, index = taken
            flow.perform(index)

    def _take(self, urgent_only: bool) -> tuple[_Flow, int] | None:
        with self._wake:
            while not self._closed:
                queue = self._urgent if urgent_only else self._urgent or self._bulk
                if queue:
                    flow = queue.popleft()
                    index = flow.begun
                    flow.begun += 1
                    if flow.begun < len(flow.units):
                        queue.append(flow)
                    return flow, index
                self._wake.wait()
            return None


class _Flow:
    """One request: ``begun`` is guarded by the lanes' lock, the rest belongs to the event loop."""

    __slots__ = ("_left", "_loop", "_results", "begun", "done", "units")

    def __init__(self, units: Sequence[Callable[[], Any]]) -> None:
        self.units = units
        self.begun = 0
        self._left = len(units)
        self._results: list[Any] = [None] * len(units)
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self._loop.create_future()

    def perform(self, index: int) -> None:
        """Run one unit, in a thread."""
        try:
            result, error = self.units[index](), None
        except Exception as exc:  # noqa: BLE001 - handed to whoever waits for it
            result, error = None, exc
        # A loop that is closed has nobody waiting.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, index, result, error)

    def fail(self, error: Exception) -> None:
        """End the wait with ``error``."""
        if not self.done.done():
            self.done.set_exception(error)

    def _settle(self, index: int, result: Any, error: Exception | None) -> None:
        if error is not None:
            self.fail(error)
        self._results[index] = result
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(self._results)
