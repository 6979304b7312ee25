"""The option ``maxPerSource``: a maximum number of hits per source. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.query import Query
from ability_search.search.stage import Ports, Stage


def count_limited(ranked: Sequence[Candidate], query: Query) -> int:
    """Return the number of hits left with the maximum per source."""
    most = query.asked.max_per_source
    if most is None:
        return len(ranked)
    return sum(min(count, most) for count in Counter(item.source for item in ranked).values())


async def limit_sources(candidates: Candidates, _ports: Ports) -> None:
    """Drop hits beyond the maximum of their source."""
    most = candidates.query.asked.max_per_source
    seen: Counter[str] = Counter()
    kept = []
    for item in candidates.ranked:
        seen[item.source] += 1
        if most is None or seen[item.source] <= most:
            item.trace[NAME] = {"ofSource": seen[item.source], "most": most}
            kept.append(item)
    candidates.ranked = kept


NAME = "maxPerSource"
SOURCE_LIMIT = Stage(
    NAME,
    lambda candidates: candidates.query.asked.max_per_source is not None,
    limit_sources,
    step=NAME,
)
