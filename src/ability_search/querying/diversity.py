"""The option ``diversity``: variety among the first hits, by maximal marginal relevance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Context, adjust, put_behind
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.steps import Reach, Reordering
from ability_search.ranking.diversity import diversified, similarities
from ability_search.store import arcadedb

_TIMES = 3
"""Candidates compared per hit on the page."""
_LEAST = 30
_MOST = 300
"""Maximum number of candidates compared; hits beyond keep their order."""


def wanted(query: Query) -> bool:
    """Return whether diversity counts besides relevance."""
    return query.options.diversity is not None and query.options.diversity < 1


def reach(picks: int) -> int:
    """Return how many of the first candidates the last of ``picks`` picks chooses from."""
    return min(_MOST, max(_LEAST, _TIMES * picks))


async def reorder(
    found: list[Candidate], pool: Pool, context: Context, access: Reach, answer: QueryAnswer
) -> list[Candidate]:
    """Reorder the first hits by maximal marginal relevance.

    Each pick chooses among the candidates that ranked first before any were removed. Their number
    depends on the pick, not on the page, so that all pages of a query are slices of one list.
    """
    query = context.query
    reaches = _reaches(found, min(query.offset + query.limit, _MOST))
    if query.options.diversity is None or not reaches:
        return found
    first, rest = found[: reaches[-1]], found[reaches[-1] :]
    try:
        vectors = await _embeddings(first, pool, access)
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"diversity was not applied: {exc}")
        return found
    picks = diversified(
        [item.score for item in first],
        similarities(vectors),
        [item.chunk_id for item in first],
        trade_off=query.options.diversity,
        reach=reaches,
    )
    chosen = [first[pick.place] for pick in picks]
    for item, pick in zip(chosen, picks, strict=True):
        adjust(item, DIVERSITY.name, pick.score, similarity=pick.similarity)
    places = {pick.place for pick in picks}
    behind = [item for place, item in enumerate(first) if place not in places] + rest
    put_behind(behind, chosen, DIVERSITY.name)
    return chosen + behind


def _reaches(found: Sequence[Candidate], picks: int) -> list[int]:
    """Return how many of ``found`` each pick chooses from: at least one that is left."""
    places = sorted(item.place for item in found)
    return [
        max(bisect_left(places, reach(count)), count)
        for count in range(1, min(picks, len(found)) + 1)
    ]


async def _embeddings(items: Sequence[Candidate], pool: Pool, access: Reach) -> list[list[float]]:
    """Return the vectors in order; a zero vector for a chunk that was replaced meanwhile."""
    rows = await access.store.read(
        *arcadedb.embeddings(pool.collection.type, [item.rid for item in items])
    )
    known = {row["rid"]: row["embedding"] for row in rows if row["embedding"]}
    nothing = [0.0] * pool.collection.dimensions
    return [known.get(item.rid, nothing) for item in items]


DIVERSITY = Reordering("diversity", wanted, reorder)
