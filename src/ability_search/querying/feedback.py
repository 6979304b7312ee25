"""Implicit pseudo-relevance feedback: the first hits of a hybrid query move its vector slightly.

The first hits are compared with each other where their rows are read anyway, so there is no extra
round trip. The first :data:`DEPTH` candidates get the scores of a search by the moved vector; all
others keep their order behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.ports import Store
from ability_search.querying.adjusting import Context, adjust, best_first, put_behind
from ability_search.querying.candidates import Pool
from ability_search.querying.fusing import arm_weights
from ability_search.querying.model import Candidate
from ability_search.ranking.feedback import feedback_weights, rocchio_cosines
from ability_search.ranking.fusion import normalized_cosine
from ability_search.store import arcadedb

NAME = "feedback"
DEPTH = 20
LEARNED = 3
"""Number of first hits used as feedback."""


def possible(pool: Pool, context: Context) -> bool:
    """Return whether feedback applies: both retrievers searched, default fusion, no dates.

    If dates count, the first hits by words and meaning alone may be exactly what is not wanted.
    """
    query, plan = context.query, context.plan
    both = plan.vector is not None and plan.terms is not None and not pool.failed
    default = query.fusion is None and query.options.soft_feedback
    return both and context.ranking.feedback > 0 and default and context.time is None


def wanted(pool: Pool, context: Context) -> bool:
    """Return whether the first hits are used as feedback; not if the query excludes something."""
    return possible(pool, context) and not context.query.excluded


async def learn(store: Store, pool: Pool, block: Sequence[Candidate], context: Context) -> None:
    """Rescore the first candidates, and read their rows.

    Args:
        store: The database.
        pool: The pool they are from.
        block: The candidates of the first depth, scored.
        context: Context of the stages.
    """
    best = best_first(block)
    first, rest = best[:DEPTH], best[DEPTH:]
    teachers = [item for item in first if item.semantic is not None][:LEARNED]
    if not teachers:
        return
    await read_compared(store, pool, first, teachers)
    _score_anew(first, teachers, pool, context)
    put_behind(rest, first, NAME)


async def read_compared(
    store: Store, pool: Pool, items: Sequence[Candidate], teachers: Sequence[Candidate]
) -> None:
    """Read the rows of candidates, and their cosines to the feedback hits."""
    answer = await store.read(
        *arcadedb.hit_rows(
            pool.collection.type,
            [item.rid for item in items],
            compared=[item.rid for item in teachers],
        )
    )
    rows = {row["rid"]: row for row in answer["rows"]}
    for item in items:
        item.row = rows.get(item.rid)


def _score_anew(
    first: Sequence[Candidate], teachers: Sequence[Candidate], pool: Pool, context: Context
) -> None:
    alike = {item.chunk_id: likeness(item, len(teachers)) for item in first}
    if any(not alike[item.chunk_id] for item in teachers):
        return  # one of them was replaced meanwhile
    taught = {item.chunk_id for item in teachers}
    others = [item for item in first if alike[item.chunk_id] and item.chunk_id not in taught]
    learners = [*teachers, *others]
    cosines = [item.semantic or 0.0 for item in learners]
    moved = rocchio_cosines(
        cosines,
        [alike[item.chunk_id] for item in learners],
        feedback_weights([item.score for item in teachers]),
        beta=context.ranking.feedback,
    )
    share = arm_weights(pool, context.plan, context.query, context.ranking)["semantic"]
    gains = share * (normalized_cosine(moved) - normalized_cosine(cosines))
    for item, gain, cosine in zip(learners, gains.tolist(), moved.tolist(), strict=True):
        adjust(item, NAME, min(1.0, max(0.0, item.score + gain)), cosine=cosine)


def likeness(item: Candidate, count: int) -> list[float]:
    """Return the cosines of a candidate to the feedback hits; empty if any is unknown."""
    row = item.row or {}
    found = [row.get(f"like{place}") for place in range(count)]
    known = [float(like) for like in found if like is not None]
    return known if item.semantic is not None and len(known) == count else []
