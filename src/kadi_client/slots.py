"""Concurrency slots that callers share fairly."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager


class Full(Exception):
    """The queue for a slot is full; ``waiting`` calls of this caller are in it."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} calls of this caller are waiting already")
        self.waiting = waiting


class FairSlots:
    """A fixed number of slots, granted to the waiting callers that hold the fewest.

    Of those with equally many, the caller is next whose calls have held slots for the shortest time
    since it last had none; a newcomer begins with the shortest time of all. So turns are by work:
    a caller with long calls gets fewer of them. The calls of one caller are served in order of
    arrival. Not for several event loops.

    Args:
        slots: Number of slots.
        max_waiting: Maximum number of waiting calls.
        share: Share of the waiting calls that one caller may have, 0 to 1; at least one call.
        reserve: Let a caller hold at most as many slots as it leaves free: alone it gets half of
            them, the next caller half of the rest, and so on, so that a newcomer finds a free slot
            (dynamic thresholds with alpha 1: Choudhury and Hahne, IEEE/ACM Transactions on
            Networking 6(2), 1998).
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        slots: int,
        *,
        max_waiting: int,
        share: float = 0.25,
        reserve: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = slots
        self._max_waiting = max_waiting
        self._max_waiting_each = min(max_waiting, max(1, int(share * max_waiting)))
        self._reserve = reserve
        self._clock = clock
        self._held: Counter[Hashable] = Counter()
        self._used: dict[Hashable, float] = {}
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0
        """Number of calls waiting for a slot."""

    @property
    def calls(self) -> int:
        """Number of calls that hold a slot or wait for one."""
        return sum(self._held.values()) + self.waiting

    @asynccontextmanager
    async def slot(self, caller: Hashable, *, timeout: float | None = None) -> AsyncIterator[None]:
        """Wait for a slot, up to ``timeout`` seconds, and hold it during the block.

        Raises:
            Full: if too many calls are waiting already, in total or of this caller.
            TimeoutError: if no slot was free in time.
        """
        self._used.setdefault(caller, min(self._used.values(), default=0.0))
        try:
            if caller not in self._queues and self._may_start(caller):
                self._take(caller)
            else:
                async with asyncio.timeout(timeout):
                    await self._wait(caller)
            began = self._clock()
            try:
                yield
            finally:
                self._used[caller] += self._clock() - began
                self._release(caller)
        finally:
            if caller not in self._held and caller not in self._queues:
                self._used.pop(caller, None)

    async def _wait(self, caller: Hashable) -> None:
        queue = self._queues.get(caller, deque())
        if self.waiting >= self._max_waiting or len(queue) >= self._max_waiting_each:
            raise Full(len(queue))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._queues[caller] = queue
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(caller)  # the slot was granted, but the caller is gone
            elif turn in self._queues.get(caller, ()):
                queue.remove(turn)
                self._left(caller)
            raise

    def _may_start(self, caller: Hashable) -> bool:
        return self._free > (self._held[caller] if self._reserve else 0)

    def _take(self, caller: Hashable) -> None:
        self._free -= 1
        self._held[caller] += 1

    def _release(self, caller: Hashable) -> None:
        """Free a slot, and grant slots to the next callers."""
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        while self._queues:
            following = min(self._queues, key=lambda each: (self._held[each], self._used[each]))
            if not self._may_start(following):
                return
            turn = self._queues[following].popleft()
            self._queues.move_to_end(following)
            self._left(following)
            if not turn.done():
                self._take(following)
                turn.set_result(None)

    def _left(self, caller: Hashable) -> None:
        self.waiting -= 1
        if not self._queues[caller]:
            del self._queues[caller]
