"""Event resolution: second search of a query that names an event, for the days around it."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.errors import DatabaseUnavailable
from ability_search.querying import dating
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Plan, Pool, find_candidates
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.planning import Vectors, planned
from ability_search.querying.steps import Reach
from ability_search.text.term_statistics import TermStatistics


async def search_again(
    found: Sequence[Candidate],
    pool: Pool,
    context: Context,
    vectors: Vectors | None,
    statistics: TermStatistics | None,
    reach: Reach,
    answer: QueryAnswer,
) -> tuple[Pool, Plan, Query]:
    """Search again with the event of a query resolved to a date; unchanged if no hit dates it.

    Args:
        found: The scored candidates of the original query.
        pool: The pool they are from.
        context: Context of the query.
        vectors: The query's vectors, ``None`` without.
        statistics: Term statistics of the collection, if terms are searched.
        reach: Ports and settings.
        answer: Receives a warning if this search fails.

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
        again = await find_candidates(reach.store, reach.registry, pool.collection, plan)
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"the event was not resolved: {exc}")
        return stands
    return again, plan, query
