"""Concurrency slots that callers share fairly."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Full(Exception):
    """The queue for a slot is full."""


class FairSlots:
    """A fixed number of slots, granted to the waiting callers in turn (round-robin).

    The calls of one caller are served in order of arrival. At most ``max_waiting`` calls wait;
    one caller may have at most a quarter of that, but at least one.
    """

    def __init__(self, slots: int, *, max_waiting: int) -> None:
        self._free = slots
        self._max_waiting = max_waiting
        self._max_waiting_each = min(max_waiting, max(1, max_waiting // 4))
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0
        """Number of calls waiting for a slot."""

    @asynccontextmanager
    async def slot(self, caller: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it during the block.

        Raises:
            Full: if too many calls are waiting already, in total or of this caller.
        """
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, caller: Hashable) -> None:
        if self._free:
            self._free -= 1
            return
        queue = self._queues.get(caller, deque())
        if self.waiting >= self._max_waiting or len(queue) >= self._max_waiting_each:
            raise Full
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._queues[caller] = queue
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was granted, but the caller is gone
            else:
                self._leave(caller, turn)
            raise

    def _leave(self, caller: Hashable, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(caller)
        if queue is not None and turn in queue:
            queue.remove(turn)
            self.waiting -= 1
            if not queue:
                del self._queues[caller]

    def _release(self) -> None:
        """Grant the slot to the next caller in turn, or free it."""
        while self._queues:
            caller, queue = next(iter(self._queues.items()))
            turn = queue.popleft()
            self.waiting -= 1
            if queue:
                self._queues.move_to_end(caller)
            else:
                del self._queues[caller]
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1
