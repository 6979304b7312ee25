"""The option ``decay``: age lowers scores, use by the same agent raises them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ability_search.errors import DatabaseUnavailable, SearchError
from ability_search.search.candidates import Candidate, Candidates, scale
from ability_search.search.options import Decay
from ability_search.search.stage import Ports, option_stage, scorer
from ability_search.store.port import UsageStore

log = logging.getLogger(__name__)

USE_STEP: Final = 0.02
USE_LIMIT: Final = 1.3
"""Reached at fifteen uses, so that often shown chunks do not crowd out all others."""
_USES = "uses"
"""Column with the number of uses by the agent."""
_DAY = 86_400_000
_PENDING = 100
"""Maximum number of pending answers; beyond it answers are not counted."""
_PATIENCE = 10.0
"""Maximum wait on close, in seconds."""


def recency(age_days: float, *, half_life: float, floor: float) -> float:
    """Return the factor of a score for age: ``max(floor, 2^(-age / half_life))``, 0 to 1.

    Args:
        age_days: negative ages, in the future, count as 0.
        half_life: days, > 0.
        floor: 0 to 1.
    """
    return float(max(floor, 2 ** (-max(0.0, age_days) / half_life)))


def familiarity(uses: int, *, step: float = USE_STEP, limit: float = USE_LIMIT) -> float:
    """Return the boost by use as a fraction of the greatest boost.

    ``min(limit, 1 + step uses) / limit``: 1 / 1.3 without a use, 1 from 15 on.

    Args:
        uses: number of times the chunk was shown before, >= 0.
        step: boost per use.
        limit: greatest boost, > 0.
    """
    return min(limit, 1 + step * uses) / limit


def score_decay(option: Decay, items: Sequence[Candidate], candidates: Candidates) -> None:
    """Multiply scores by the decay for age and, if an agent is named, by the boost for use."""
    now = candidates.now
    for item in items:
        age = max(0, now - item.columns.get("created_at", now)) / _DAY
        left = recency(age, half_life=option.half_life_days, floor=option.floor)
        detail = {"ageDays": age, "recency": left}
        if option.agent_id is not None:
            uses = item.columns.get(_USES) or 0
            detail |= {"uses": uses, "familiarity": familiarity(uses)}
            left *= detail["familiarity"]
        scale(item, NAME, 1 - option.weight + option.weight * left, **detail)


async def read_uses(agent: str, candidates: Candidates, ports: Ports) -> None:
    """Read how often each candidate was shown to the agent."""
    chunks = candidates.chunks
    if not chunks:
        return
    try:
        uses = await ports.store.uses(agent, [item.chunk_id for item in chunks])
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"decay: previous use is ignored: {exc}")
        return
    for item in chunks:
        item.columns = {**item.columns, _USES: uses.get(item.chunk_id, 0)}


NAME = "decay"
DECAY = scorer(NAME, lambda query: query.decay, score_decay, lambda _: ("created_at",))
USE = option_stage("use", lambda query: query.decay.agent_id if query.decay else None, read_uses)


class UseCounter:
    """Counts how often each agent was shown a chunk, in the background.

    Counting never delays a query; failures are logged and dropped.

    Args:
        store: Stores the counts.
        now: Returns the time in epoch milliseconds.
    """

    def __init__(self, store: UsageStore, *, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._turn = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()

    def count(self, agent: str, shown: Sequence[tuple[str, str]]) -> None:
        """Schedule one more count of each hit, as collection and chunkId, shown to ``agent``."""
        if not shown:
            return
        if len(self._pending) >= _PENDING:
            log.warning("use of %d hits not counted: too many writes pending", len(shown))
            return
        task = asyncio.create_task(self._write(agent, shown), name="count use")
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

    async def _write(self, agent: str, shown: Sequence[tuple[str, str]]) -> None:
        try:
            async with self._turn:
                await self._store.count_uses(agent, shown, now=self._now())
        except SearchError as exc:
            log.warning("use of %d hits not counted: %s", len(shown), exc)
