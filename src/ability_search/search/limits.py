"""The options ``minSignals``, ``minScore`` and ``maxPerSource``: hits that are left out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Retriever


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


def floor_depth(floor: float, candidates: Candidates) -> float:
    """Return the least depth at which the retrievers reached candidates below ``minScore``.

    Those that only a deeper search finds are below it too. Infinity if one has not reached any.
    """
    request = candidates.request
    by: Retriever = "keyword" if request.vector is None else "semantic"
    if not candidates.weights.get(by, 1.0):
        return inf
    scores = ((item, item.fused if by == "keyword" else item.cosine) for item in candidates.found)
    below = [item for item, score in scores if score is None or score < floor]
    return max(
        min((item.depth for item in below if name in item.ranks), default=inf)
        for name in request.names(by, deep=True)
    )


async def apply_floor(floor: float, candidates: Candidates, _ports: Ports) -> None:
    """Drop candidates below the floor; warn if there are no cosines to compare with it."""
    every = len(candidates.ranked)
    if candidates.mode != candidates.query.asked.mode and candidates.mode == "keyword":
        candidates.warnings.append(
            f"minScore: {floor} was compared with normalized keyword scores,"
            " because the query has no vector"
        )
    reached = floor_depth(floor, candidates)
    candidates.exhausted |= reached <= candidates.request.depths[-1]
    ranked = above(candidates.ranked, floor, mode=candidates.mode)
    candidates.ranked = [item for item in ranked if item.depth <= reached]
    left_out = every - len(candidates.ranked)
    candidates.explained["minScore"] = {"floor": floor, "leftOut": left_out}


async def require_signals(least: int, candidates: Candidates, _ports: Ports) -> None:
    """Drop candidates that too few retrievers found among their first candidates.

    Deeper ranks do not count, so that all pages are of one list.
    """
    most = candidates.request.depths[0]
    candidates.exhausted = True
    candidates.ranked = [
        item
        for item in candidates.ranked
        if item.depth <= most
        and sum(rank <= most for rank in item.ranks.values()) + len(item.kinds) >= least
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
SIGNAL_FLOOR = Stage(
    "minSignals",
    Phase.LIMIT,
    10,
    require_signals,
    option=lambda asked: asked.min_signals,
    step="ranking",
    computes=True,
)
SCORE_FLOOR = Stage(
    "minScore",
    Phase.LIMIT,
    20,
    apply_floor,
    option=lambda asked: asked.min_score,
    step="ranking",
    computes=True,
)
SOURCE_LIMIT = Stage(
    PER_SOURCE,
    Phase.SELECT,
    10,
    limit_sources,
    option=lambda asked: asked.max_per_source,
    left=lambda most, ranked, _: [item for item, _ in limited(ranked, most)],
    computes=True,
)
