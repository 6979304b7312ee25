"""The second search of a query that names an event, with the days beside it."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.errors import DatabaseUnavailable
from ability_search.querying import dating
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Plan, Pool, find_candidates
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.planning import Vectors, planned
from ability_search.querying.steps import Reach
from ability_search.ranking.statistics import TermStatistics


async def search_again(
    found: Sequence[Candidate],
    pool: Pool,
    context: Context,
    vectors: Vectors | None,
    statistics: TermStatistics | None,
    reach: Reach,
    answer: QueryAnswer,
) -> tuple[Pool, Plan, Query]:
    """Search what a query means once its event is dated; as it was if none of its hits tells.

    Args:
        found: The candidates of the query as it stands, scored.
        pool: Where they are from.
        context: What the query is.
        vectors: The query's, ``None`` without.
        statistics: Of the collection, if words are searched for.
        reach: The network.
        answer: Told in its warnings if this cannot be searched for.

    Raises:
        NotFound: if the collection is gone.
    """
    stands = pool, context.plan, context.query
    query = dating.dated(found, context)
    if query is None:
        return stands
    plan = planned(
        query,
        None if vectors is None else {**vectors, "cosine": vectors[dating.BESIDE]},
        statistics,
        depth=context.plan.depths[-1],
        language=pool.collection.language,
        ranking=context.ranking,
    )
    try:
        again = await find_candidates(reach.store, reach.catalogue, pool.collection, plan)
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"nothing was searched beside the event: {exc}")
        return stands
    return again, plan, query
