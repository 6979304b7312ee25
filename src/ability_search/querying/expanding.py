"""Pseudo-relevance feedback: a second search with what the first hits add to the query.

The query vector moves towards the first hits (Rocchio), and their characteristic terms join its
own (RM3). The candidates of this second search replace the first ones. Only ``minScore`` still
uses the cosine to the query's own vector.
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
from ability_search.ranking.feedback import feedback_weights, learned_terms, moved_vector
from ability_search.text.bm25 import QueryTerms, joined
from ability_search.text.term_statistics import TermStatistics

STAGE = "prf"


def learnable(query: Query) -> int:
    """Return how many first candidates per retriever feedback may use; 0 if it is off."""
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
    """Search again with the query expanded by its first hits; unchanged if none is similar enough.

    Args:
        found: The candidates in the order of the original query.
        pool: The pool they are from.
        context: Context of the query.
        statistics: Term statistics of the collection, if terms are searched.
        reach: Ports and settings.
        answer: Receives a warning if this search fails.

    Raises:
        NotFound: if the collection is gone.
    """
    choice = context.query.options.feedback
    taught = _teachers(found, context.plan, choice) if choice else []
    if choice is None or not taught:
        return pool, replace(context.plan, learned={"chunks": {}, "terms": 0})
    plan = learned(context.plan, taught, choice, statistics)
    try:
        again = await find_candidates(reach.store, reach.registry, pool.collection, plan)
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"pseudo-relevance feedback was not applied: {exc}")
        return pool, context.plan
    if context.query.explain:
        for item in again.candidates:
            item.trace[STAGE] = {"cosine": item.moved, "bm25": item.bm25}
    return again, plan


def _teachers(found: Sequence[Candidate], plan: Plan, choice: Feedback) -> list[Candidate]:
    """Return the first hits of the least similarity required; by keyword score without a vector."""

    def likeness(item: Candidate) -> float:
        return item.fused if plan.vector is None else item.cosine or 0.0

    known = [item for item in found if item.columns.get("embedding") is not None]
    return [item for item in known[: choice.chunks] if likeness(item) >= choice.min_similarity]


def learned(
    plan: Plan, taught: Sequence[Candidate], choice: Feedback, statistics: TermStatistics | None
) -> Plan:
    """Return the plan of the expanded query.

    Args:
        plan: Plan of the original query.
        taught: The feedback hits, best first, with their terms and embeddings; at least one.
        choice: The feedback options.
        statistics: Term statistics of the collection, if terms are searched.
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
