"""The option ``decay``: age lowers scores, use by the same agent raises them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ability_search.errors import DatabaseUnavailable, InvalidInput, SearchError
from ability_search.extensions.sessions import Decay, DecayOptions
from ability_search.extensions.sessions.uses import Use, count_uses, read_uses, write_uses
from ability_search.filters.operands import instants
from ability_search.filters.predicate import value_of
from ability_search.filters.tree import Field
from ability_search.search.candidates import Answer, Candidate, Candidates, scale
from ability_search.search.query import CREATED_AT, Query, chunk_field
from ability_search.search.stage import Phase, Ports, Stage, scorer
from ability_search.search.wants import Wants
from ability_search.store.port import Store
from ability_search.store.records import metadata_column

log = logging.getLogger(__name__)

USE_STEP: Final = 0.02
USE_LIMIT: Final = 1.3
"""Reached at fifteen uses, so that often shown chunks do not crowd out all others."""
_USES = "uses"
"""Column with the use by the agent; ``None`` without."""
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


def familiarity(uses: int, *, useful: bool | None = None) -> float:
    """Return the boost by use as a fraction of the greatest boost.

    ``min(limit, 1 + step uses) / limit``: 1 / 1.3 without a use, 1 from 15 on. A mark takes its
    place: 1 for useful, ``(2 - limit) / limit`` for not useful, as far below no use at all.

    Args:
        uses: number of times the chunk was shown before, >= 0.
        useful: the agent's mark; ``None`` without.
    """
    if useful is not None:
        return 1.0 if useful else (2 - USE_LIMIT) / USE_LIMIT
    return min(USE_LIMIT, 1 + USE_STEP * uses) / USE_LIMIT


def score_decay(option: Decay, items: Sequence[Candidate], candidates: Candidates) -> None:
    """Multiply scores by the decay for age and, if an agent is named, by the boost for use."""
    now, path = candidates.now, _date_path(option)
    for item in items:
        try:
            date = instants(NAME, value_of(Field("metadata", path), item.columns))[0]
        except InvalidInput:
            date = int(item.columns.get("created_at", now))
        age = max(0, now - date) / _DAY
        left = recency(age, half_life=option.half_life_days, floor=option.floor)
        detail = {"ageDays": age, "recency": left}
        if option.agent_id is not None:
            use: Use | None = item.columns.get(_USES)
            uses, useful = (use.uses, use.useful) if use else (0, None)
            detail |= {"uses": uses, "familiarity": familiarity(uses, useful=useful)}
            detail |= {} if useful is None else {"useful": useful}
            left *= detail["familiarity"]
        scale(item, NAME, 1 - option.weight + option.weight * left, **detail)


async def add_uses(option: Decay, candidates: Candidates, ports: Ports) -> None:
    """Read how often each candidate was shown to the agent."""
    chunks = candidates.chunks
    if not chunks or option.agent_id is None:
        return
    try:
        uses = await read_uses(ports.store, option.agent_id, [item.chunk_id for item in chunks])
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"decay: previous use is ignored: {exc}")
        return
    for item in chunks:
        item.columns = {**item.columns, _USES: uses.get(item.chunk_id)}


def decay_of(asked: DecayOptions) -> Decay | None:
    """Return the option of a request; ``None`` if it has no effect.

    Raises:
        InvalidInput: if hits are marked for no agent, or if its field is no date.
    """
    option = asked.decay
    if option is None:
        return None
    if option.agent_id is None and (option.useful or option.not_useful):
        raise InvalidInput("decay.agentId", "is needed to mark hits as useful or not")
    _date_path(option)
    return option if option.weight > 0 else None


def _date_path(option: Decay) -> tuple[str, ...]:
    """Return the keys within the metadata of the date; empty for ``createdAt``."""
    field = chunk_field("decay.field", option.field)
    if not field.path and field.name != CREATED_AT:
        raise InvalidInput("decay.field", "is no date", hint="Use createdAt or metadata.<key>.")
    return field.path


def _agent(asked: DecayOptions) -> Decay | None:
    """Return the option of a request that names an agent."""
    return asked.decay if asked.decay is not None and asked.decay.agent_id else None


def _wants(option: Decay, _query: Query) -> Wants:
    metadata = [metadata_column(key) for key in _date_path(option)[:1]]
    return Wants(fields=("created_at", *metadata))


NAME = "decay"
DECAY = scorer(NAME, 70, score_decay, option=decay_of, wants=_wants)
USE = Stage("use", Phase.FIND, 40, add_uses, option=lambda asked: _agent(asked) and decay_of(asked))


class UseCounter:
    """Counts how often each agent was shown a chunk, in the background.

    Counting never delays a query; failures are logged and dropped.

    Args:
        store: Stores the counts.
        now: Returns the time in epoch milliseconds.
    """

    def __init__(self, store: Store, *, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._turn = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()

    async def count(self, option: Decay, answer: Answer, _ports: Ports) -> None:
        """Schedule one more count of each hit of an answer, and the marks of earlier hits."""
        assert option.agent_id is not None
        assert answer.result is not None
        shown = [hit.chunk_id for hit in answer.result.results]
        marks = dict.fromkeys(option.useful, True) | dict.fromkeys(option.not_useful, False)
        if not shown and not marks:
            return
        if len(self._pending) >= _PENDING:
            log.warning("use of %d hits not counted: too many writes pending", len(shown))
            return
        task = asyncio.create_task(self._write(option.agent_id, shown, marks), name="count use")
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

    async def _write(self, agent: str, shown: Sequence[str], marks: Mapping[str, bool]) -> None:
        try:
            async with self._turn:
                changes = count_uses(agent, shown, marks, now=self._now())
                await write_uses(self._store, changes)
        except SearchError as exc:
            log.warning("use of %d hits not counted: %s", len(shown), exc)


def use_count(ports: Ports) -> Stage:
    """Return the stage that counts the use of hits by the agent of a query."""
    use = UseCounter(ports.store, now=ports.now)
    return Stage("use count", Phase.ANSWER, 20, use.count, option=_agent, close=use.close, step="")
