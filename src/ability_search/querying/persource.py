"""The option ``maxPerSource``: a maximum number of hits per source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.steps import Reach, Reordering


def kept(found: Sequence[Candidate], query: Query) -> int:
    """Return the number of hits left with the maximum per source."""
    most = query.options.max_per_source
    if most is None:
        return len(found)
    return sum(min(count, most) for count in Counter(item.source for item in found).values())


async def reorder(
    found: list[Candidate], _pool: Pool, context: Context, _reach: Reach, _answer: QueryAnswer
) -> list[Candidate]:
    """Drop hits beyond the maximum of their source."""
    most = context.query.options.max_per_source
    seen: Counter[str] = Counter()
    kept = []
    for item in found:
        seen[item.source] += 1
        if most is None or seen[item.source] <= most:
            item.trace[PER_SOURCE.name] = {"ofSource": seen[item.source], "most": most}
            kept.append(item)
    return kept


PER_SOURCE = Reordering(
    "maxPerSource", lambda query: query.options.max_per_source is not None, reorder
)
