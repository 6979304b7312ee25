"""What agents were shown, counted behind their backs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.errors import SearchError, StatementRefused
from ability_search.querying.model import Hit

log = logging.getLogger(__name__)

_ATTEMPTS = 4
_PENDING = 100
"""Answers waiting to be counted; further ones are not, as the database does not keep up."""
_PATIENCE = 10.0
"""Seconds that closing waits."""


class Usage:
    """Counts, for each agent, how often it was shown a chunk.

    Nobody waits for it, and what fails is logged and forgotten.

    Args:
        catalogue: Writes, creating the schema where it is missing.
        now: The time in epoch milliseconds.
    """

    def __init__(self, catalogue: Catalogue, *, now: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._now = now
        self._turn = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()

    def count(self, agent: str, hits: Sequence[Hit]) -> None:
        """Count each of ``hits`` as shown to ``agent`` once more, soon."""
        if not hits:
            return
        if len(self._pending) >= _PENDING:
            log.warning("%d hits shown to an agent are not counted", len(hits))
            return
        task = asyncio.create_task(self._write(agent, hits), name="count use")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """Wait until everything is counted, but not long."""
        if not self._pending:
            return
        _, late = await asyncio.wait(self._pending, timeout=_PATIENCE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if late:
            log.warning("%d answers are not counted, as the worker ends", len(late))

    async def _write(self, agent: str, hits: Sequence[Hit]) -> None:
        shown = [(hit.collection, hit.chunk_id) for hit in hits]
        try:
            async with self._turn:
                await self._write_through(statements.count_uses(agent, shown, now=self._now()))
        except SearchError as exc:
            log.warning("%d hits shown to an agent are not counted: %s", len(hits), exc)

    async def _write_through(self, statement: statements.Statement) -> None:
        """Write, again where another worker was counting the same."""
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            retry=retry_if_exception(_in_conflict),
            reraise=True,
        ):
            with attempt:
                await self._catalogue.write(statement)


def _in_conflict(exc: BaseException) -> bool:
    # What was rolled back was not counted, and an insertion met by another one was rolled back.
    return isinstance(exc, StatementRefused) and exc.reason in ("conflict", "duplicate")
