"""The option ``decay``: age lowers scores, use by the same agent raises them."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Adjustment, Context, scale
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.steps import Look, Reach
from ability_search.ranking.decay import familiarity, recency
from ability_search.store import arcadedb

_USES = "uses"
_DAY = 86_400_000


def columns(query: Query) -> list[str]:
    """Return the column with the age, if decay has a weight."""
    decay = query.options.decay
    return ["createdAt"] if decay and decay.weight > 0 else []


def adjust(items: Sequence[Candidate], context: Context) -> None:
    """Multiply scores by the decay for age and, if an agent is named, by the boost for use."""
    decay = context.query.options.decay
    if decay is None or decay.weight == 0:
        return
    for item in items:
        age = max(0, context.now - item.columns.get("createdAt", context.now)) / _DAY
        left = recency(age, half_life=decay.half_life_days, floor=decay.floor)
        detail = {"ageDays": age, "recency": left}
        if decay.agent is not None:
            uses = item.columns.get(_USES) or 0
            detail |= {"uses": uses, "familiarity": familiarity(uses)}
            left *= detail["familiarity"]
        scale(item, DECAY.name, 1 - decay.weight + decay.weight * left, **detail)


def counts_use(query: Query) -> bool:
    """Return whether the use by an agent counts."""
    decay = query.options.decay
    return decay is not None and decay.agent is not None and decay.weight > 0


async def look(pool: Pool, context: Context, reach: Reach, answer: QueryAnswer) -> None:
    """Read how often each candidate was shown to the agent."""
    decay = context.query.options.decay
    if decay is None or decay.agent is None or not pool.candidates:
        return
    ids = [item.chunk_id for item in pool.chunks]
    try:
        rows = await reach.registry.read(arcadedb.uses(decay.agent, ids))
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"decay: previous use is ignored: {exc}")
        return
    uses = {row["chunkId"]: row["uses"] for row in rows}
    for item in pool.chunks:
        item.columns = {**item.columns, _USES: uses.get(item.chunk_id, 0)}


DECAY = Adjustment("decay", columns, adjust)
USE = Look("use", counts_use, look)
