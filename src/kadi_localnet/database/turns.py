"""Whose statement runs next: agents share the threads of a database.

An agent may hold as many threads as it leaves free: alone it gets half of them, the next agent half
of what is left, and so on. A newcomer finds a free thread unless many others are at work. Places in
the queue are shared alike. (The dynamic thresholds, with alpha 1, of A. K. Choudhury and E. L.
Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.)
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kadi_localnet.database.backend import DatabaseError

PLACES = 512
"""Calls that may wait, of all agents together."""

_UNKNOWN = ""


class Turns:
    """Hands out ``threads`` to agents: first to those who hold the fewest, among them in turn.

    Agents are distinguished by their id; calls of which the broker names no agent count as those of
    one. Not for use by several event loops.
    """

    def __init__(self, threads: int, *, places: int = PLACES) -> None:
        self._free = threads
        self._free_places = places
        self._held: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def calls(self) -> int:
        """Return the number of calls that run or wait."""
        return sum(self._held.values()) + sum(map(len, self._queues.values()))

    @asynccontextmanager
    async def turn(self, agent: str | None, *, timeout: float) -> AsyncIterator[None]:
        """Hold a thread in the block, after a wait of ``timeout`` seconds at most.

        Raises:
            DatabaseError: after the time, or at once if too many calls of the agent wait already.
        """
        name = agent or _UNKNOWN
        if name not in self._queues and self._may_start(name):
            self._take(name)
        else:
            await self._wait(name, timeout)
        try:
            yield
        finally:
            self._give_back(name)

    async def _wait(self, agent: str, timeout: float) -> None:
        waiting = len(self._queues.get(agent, ()))
        if waiting >= self._free_places:
            raise DatabaseError(
                f"the database is busy: {waiting} calls of this agent are waiting already:"
                " call again in a moment"
            )
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(agent, deque()).append(turn)
        self._free_places -= 1
        try:
            async with asyncio.timeout(timeout):
                await turn
        except BaseException as exc:
            if turn.done() and not turn.cancelled():
                self._give_back(agent)
            elif turn in self._queues.get(agent, ()):
                self._queues[agent].remove(turn)
                self._left(agent)
            if isinstance(exc, TimeoutError):
                raise DatabaseError(
                    f"the database is busy: no thread was free for this agent within {timeout:g} s,"
                    " nothing was executed: call again in a moment"
                ) from None
            raise

    def _may_start(self, agent: str) -> bool:
        return self._held[agent] < self._free

    def _take(self, agent: str) -> None:
        self._free -= 1
        self._held[agent] += 1

    def _give_back(self, agent: str) -> None:
        self._free += 1
        self._held[agent] -= 1
        if not self._held[agent]:
            del self._held[agent]
        while self._queues:
            following = min(self._queues, key=self._held.__getitem__)
            if not self._may_start(following):
                return
            turn = self._queues[following].popleft()
            self._queues.move_to_end(following)
            self._left(following)
            if not turn.done():
                self._take(following)
                turn.set_result(None)

    def _left(self, agent: str) -> None:
        self._free_places += 1
        if not self._queues[agent]:
            del self._queues[agent]
