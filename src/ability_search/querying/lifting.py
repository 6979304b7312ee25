"""Graph expansion: neighbours of the first hits gain score. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.querying.adjusting import Adjustment, Context, adjust
from ability_search.querying.model import Candidate
from ability_search.ranking.graph import lifted, strength


def lift(items: Sequence[Candidate], _context: Context) -> None:
    """Move the scores of neighbours towards those of the hits they are reached from."""
    scores = {item.chunk_id: item.score for item in items}
    for item in items:
        path = item.reached
        if path is not None and path.start.chunk_id in scores:
            strong = strength(path.weights)
            score = lifted(item.score, scores[path.start.chunk_id], strong)
            told = {"from": path.start.chunk_id, "via": list(path.steps), "hops": len(path.steps)}
            adjust(item, LIFT.name, score, strength=strong, **told)


LIFT = Adjustment("graph", lambda query: (), lift)
