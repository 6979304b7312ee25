"""Pseudo-relevance feedback: search again with what the first hits add to the query.

The query's vector moves towards them (Rocchio), and the terms that mark them join its own (RM3).
From there on this is the query that was asked: its candidates replace the first ones. Only
``minScore`` stays on the cosine to the query's own vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import OWN, Plan, Pool, find_candidates
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.options import Feedback
from ability_search.querying.steps import Reach
from ability_search.ranking.bm25 import QueryTerms, joined
from ability_search.ranking.feedback import feedback_weights, learned_terms, moved_vector
from ability_search.ranking.statistics import TermStatistics

STAGE = "prf"


def learnable(query: Query) -> int:
    """How many of each arm's first candidates may be learned from; 0 if the query does not."""
    choice = query.options.feedback
    return choice.chunks if choice is not None and choice.weight > 0 else 0


async def search_again(
    found: Sequence[Candidate],
    pool: Pool,
    context: Context,
    statistics: TermStatistics | None,
    reach: Reach,
    answer: QueryAnswer,
) -> tuple[Pool, Plan]:
    """Search by the query that its first hits teach; as it was if none of them is sure enough.

    Args:
        found: The candidates in the order that the query itself gives them.
        pool: Where they are from.
        context: What the query is.
        statistics: Of the collection, if words are searched for.
        reach: The network.
        answer: Told in its warnings if this cannot be searched for.

    Raises:
        NotFound: if the collection is gone.
    """
    choice = context.query.options.feedback
    taught = _teachers(found, context.plan, choice) if choice else []
    if choice is None or not taught:
        return pool, replace(context.plan, learned={"chunks": {}, "terms": 0})
    plan = learned(context.plan, taught, choice, statistics)
    try:
        again = await find_candidates(reach.store, reach.catalogue, pool.collection, plan)
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"nothing was learned from the first hits: {exc}")
        return pool, context.plan
    if context.query.explain:
        for item in again.candidates:
            item.trace[STAGE] = {"cosine": item.moved, "bm25": item.bm25}
    return again, plan


def _teachers(found: Sequence[Candidate], plan: Plan, choice: Feedback) -> list[Candidate]:
    """Of the first hits those with the least similarity; without a vector that of their words."""

    def likeness(item: Candidate) -> float:
        return item.fused if plan.vector is None else item.cosine or 0.0

    known = [item for item in found if item.columns.get("embedding") is not None]
    return [item for item in known[: choice.chunks] if likeness(item) >= choice.min_similarity]


def learned(
    plan: Plan, taught: Sequence[Candidate], choice: Feedback, statistics: TermStatistics | None
) -> Plan:
    """The plan of the query that was learned.

    Args:
        plan: Of the query as it was asked.
        taught: The hits learned from, best first, with their terms and embeddings; at least one.
        choice: How much is learned.
        statistics: Of the collection, if words are searched for.
    """
    shares = feedback_weights([item.score for item in taught])
    vector, terms = plan.vector, plan.terms
    by: dict[int, Sequence[float] | QueryTerms] = {}
    joining = 0
    if vector is not None:
        embeddings = [item.columns["embedding"] for item in taught]
        by[id(vector)] = moved_vector(vector, embeddings, shares, beta=choice.weight).tolist()
    if terms is not None and statistics is not None:
        named = [terms, *plan.products.values()]
        further = learned_terms(
            [(item.columns["terms"], item.columns["weights"]) for item in taught],
            shares,
            statistics,
            own={each for one in named for each in one.ids},
            count=choice.terms,
        )
        joining = len(further.ids)
        by[id(terms)] = joined(terms, further, weight=choice.weight)
    return replace(
        plan,
        searches=[replace(each, by=by.get(id(each.by), each.by)) for each in plan.searches],
        cosines=plan.cosines if vector is None else {OWN: vector, **plan.cosines},
        first=0,
        learned={
            "chunks": dict(zip([item.chunk_id for item in taught], shares.tolist(), strict=True)),
            "terms": joining,
        },
    )
