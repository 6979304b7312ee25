"""The options ``minSignals``, ``minScore`` and ``maxPerSource``: hits that are left out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.stage import Ports, option_stage


def above(items: Sequence[Candidate], floor: float, *, mode: str) -> list[Candidate]:
    """Drop candidates below ``minScore``: by cosine, in keyword mode by normalized BM25.

    For a candidate found by a kind, the cosine of the kind counts as well.
    """
    if mode == "keyword":
        return [item for item in items if item.fused >= floor]
    return [
        item
        for item in items
        if any(cosine is not None and cosine >= floor for cosine in (item.cosine, item.kind_cosine))
    ]


def reached_floor(candidates: Candidates) -> bool:
    """Return whether a retriever reached candidates below ``minScore``; deeper ones are too."""
    floor, plan = candidates.query.asked.min_score, candidates.plan
    if floor is None:
        return False
    if plan.vector is None:
        return any("keyword" in item.ranks and item.fused < floor for item in candidates.found)
    names = plan.names("semantic")
    cosines = [item.cosine for item in candidates.found if not item.ranks.keys().isdisjoint(names)]
    return any(cosine is None or cosine < floor for cosine in cosines)


async def apply_floor(floor: float, candidates: Candidates, _ports: Ports) -> None:
    """Drop candidates below the floor; warn if there are no cosines to compare with it."""
    every = len(candidates.ranked)
    if candidates.mode != candidates.query.asked.mode and candidates.mode == "keyword":
        candidates.warnings.append(
            f"minScore: {floor} was compared with normalized keyword scores,"
            " because the query has no vector"
        )
    candidates.ranked = above(candidates.ranked, floor, mode=candidates.mode)
    candidates.below = every - len(candidates.ranked)


async def require_signals(least: int, candidates: Candidates, _ports: Ports) -> None:
    """Drop candidates that too few retrievers found among their first candidates.

    Deeper ranks do not count, so that all pages are of one list.
    """
    most = candidates.plan.depths[0]
    candidates.ranked = [
        item
        for item in candidates.ranked
        if sum(rank <= most for rank in item.ranks.values()) + len(item.kinds) >= least
    ]


def limited(ranked: Sequence[Candidate], most: int | None) -> list[tuple[Candidate, int]]:
    """Return the hits up to the maximum per source, with their places among those of the source."""
    seen: Counter[str] = Counter()
    kept = []
    for item in ranked:
        seen[item.source] += 1
        if most is None or seen[item.source] <= most:
            kept.append((item, seen[item.source]))
    return kept


async def limit_sources(most: int, candidates: Candidates, _ports: Ports) -> None:
    """Drop hits beyond the maximum of their source."""
    kept = limited(candidates.ranked, most)
    for item, place in kept:
        item.trace[PER_SOURCE] = {"ofSource": place, "most": most}
    candidates.ranked = [item for item, _ in kept]


PER_SOURCE = "maxPerSource"
SIGNAL_FLOOR = option_stage(
    "ranking", lambda query: query.asked.min_signals, require_signals, computes=True
)
SCORE_FLOOR = option_stage(
    "ranking", lambda query: query.asked.min_score, apply_floor, computes=True
)
SOURCE_LIMIT = option_stage(
    PER_SOURCE, lambda query: query.asked.max_per_source, limit_sources, computes=True
)
