"""Refill: deeper search if later stages leave a page short. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.querying import extending, persource, surroundings
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate

_DEEPER = 4
_DEEPEST = 10_000
"""Maximum number of candidates per retriever for a refill."""


def deeper(found: Sequence[Candidate], pool: Pool, context: Context) -> int | None:
    """Return how many candidates to request per retriever to fill the page.

    Args:
        found: The candidates of a collection that may be shown.
        pool: All candidates found in it.
        context: Context with the plan of that search.

    Returns:
        ``None`` if the page is full, or if there is nothing more to find.
    """
    query, depth = context.query, context.plan.depths[-1]
    if pool.exhausted or depth >= _DEEPEST or _below_floor(pool, context):
        return None
    counts = [
        (persource.kept(found, query), len(found)),
        (surroundings.kept(found, query), len(found)),
        (extending.kept(pool), len(pool.candidates)),
    ]
    short = [kept < before and kept < query.offset + query.limit for kept, before in counts]
    return min(_DEEPER * depth, _DEEPEST) if any(short) else None


def _below_floor(pool: Pool, context: Context) -> bool:
    """Return whether a retriever reached candidates below ``minScore``; deeper ones are too."""
    floor = context.query.min_score
    if floor is None:
        return False
    if context.plan.vector is None:
        return any("keyword" in item.ranks and item.fused < floor for item in pool.candidates)
    names = {each.name for each in context.plan.searches if each.by is context.plan.vector}
    cosines = [item.cosine for item in pool.candidates if names & item.ranks.keys()]
    return any(cosine is None or cosine < floor for cosine in cosines)
