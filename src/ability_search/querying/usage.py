"""Use counts: how often agents were shown a chunk, written in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from ability_search.errors import SearchError, StatementRefused
from ability_search.querying.model import Hit
from ability_search.store import arcadedb
from ability_search.store.registry import Registry

log = logging.getLogger(__name__)

_ATTEMPTS = 4
_PENDING = 100
"""Maximum number of pending answers; beyond it answers are not counted."""
_PATIENCE = 10.0
"""Maximum wait on close, in seconds."""


class Usage:
    """Counts how often each agent was shown a chunk.

    Counting never delays a query; failures are logged and dropped.

    Args:
        registry: Writes, creating the schema if it is missing.
        now: Returns the time in epoch milliseconds.
    """

    def __init__(self, registry: Registry, *, now: Callable[[], int]) -> None:
        self._registry = registry
        self._now = now
        self._turn = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()

    def count(self, agent: str, hits: Sequence[Hit]) -> None:
        """Schedule one more count for each of ``hits`` shown to ``agent``."""
        if not hits:
            return
        if len(self._pending) >= _PENDING:
            log.warning("use of %d hits not counted: too many writes pending", len(hits))
            return
        task = asyncio.create_task(self._write(agent, hits), name="count use")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """Wait for pending counts, up to a time limit."""
        if not self._pending:
            return
        _, late = await asyncio.wait(self._pending, timeout=_PATIENCE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if late:
            log.warning("use of %d answers not counted: the worker is stopping", len(late))

    async def _write(self, agent: str, hits: Sequence[Hit]) -> None:
        shown = [(hit.collection, hit.chunk_id) for hit in hits]
        try:
            async with self._turn:
                await self._write_through(arcadedb.count_uses(agent, shown, now=self._now()))
        except SearchError as exc:
            log.warning("use of %d hits not counted: %s", len(hits), exc)

    async def _write_through(self, statement: arcadedb.Statement) -> None:
        """Write; retry on conflicts with another worker."""
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            retry=retry_if_exception(_in_conflict),
            reraise=True,
        ):
            with attempt:
                await self._registry.write(statement)


def _in_conflict(exc: BaseException) -> bool:
    # Both mean that the transaction was rolled back and nothing was counted.
    return isinstance(exc, StatementRefused) and exc.reason in ("conflict", "duplicate")
