"""The option ``diversity``: variety among the first hits, by maximal marginal relevance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ability_search import statements
from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Context, adjust, put_behind
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.steps import Reach, Reordering
from ability_search.ranking.diversity import diversified, similarities

_TIMES = 3
"""Candidates for each hit that is shown."""
_LEAST = 30
_MOST = 300
"""Candidates that are compared at most; hits beyond keep their order."""


def wanted(query: Query) -> bool:
    """Whether anything but relevance counts."""
    return query.options.diversity is not None and query.options.diversity < 1


def reach(picks: int) -> int:
    """Among how many of the first candidates the last of so many picks chooses."""
    return min(_MOST, max(_LEAST, _TIMES * picks))


async def reorder(
    found: list[Candidate], pool: Pool, context: Context, access: Reach, answer: QueryAnswer
) -> list[Candidate]:
    """Put what is new before what repeats the hits above it.

    Each pick chooses among the candidates that were in the first places before any were left out;
    how many depends on the pick, not on the page, so that the pages of a query are cut from one
    list.
    """
    query = context.query
    reaches = _reaches(found, min(query.offset + query.limit, _MOST))
    if query.options.diversity is None or not reaches:
        return found
    first, rest = found[: reaches[-1]], found[reaches[-1] :]
    try:
        vectors = await _embeddings(first, pool, access)
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"hits are not diversified: {exc}")
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
    """Among how many of ``found`` each pick chooses: at least one that is left."""
    places = sorted(item.place for item in found)
    return [
        max(bisect_left(places, reach(count)), count)
        for count in range(1, min(picks, len(found)) + 1)
    ]


async def _embeddings(items: Sequence[Candidate], pool: Pool, access: Reach) -> list[list[float]]:
    """Their vectors, in their order; of one that was replaced in between a zero vector."""
    rows = await access.store.read(
        *statements.embeddings(pool.collection.type, [item.rid for item in items])
    )
    known = {row["rid"]: row["embedding"] for row in rows if row["embedding"]}
    nothing = [0.0] * pool.collection.dimensions
    return [known.get(item.rid, nothing) for item in items]


DIVERSITY = Reordering("diversity", wanted, reorder)
