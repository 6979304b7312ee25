"""The hits that are like what is excluded, and are something else.

Who asks for ``database work besides the audit log migration`` says that the migration is such
work. The chunk that is most about it shows what that looks like, which the name of a broad topic
does not: what is like it joins in the score, before all that is about what is excluded is pushed
down. As with :mod:`.feedback`, chunks are compared where their rows are read anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ability_search.ports import Store
from ability_search.querying import exclusion
from ability_search.querying.adjusting import Context, best_first, blend, put_behind
from ability_search.querying.candidates import Pool
from ability_search.querying.feedback import DEPTH, likeness, possible, read_compared
from ability_search.querying.model import Candidate
from ability_search.ranking.exclusion import aboutness, kinship
from ability_search.ranking.fusion import signal_weight

NAME = "siblings"


def wanted(pool: Pool, context: Context) -> bool:
    """Whether the query excludes something, and may be taught by a candidate about it."""
    return possible(pool, context) and bool(context.query.excluded)


async def learn(store: Store, pool: Pool, block: Sequence[Candidate], context: Context) -> None:
    """Score the first candidates anew, and read their rows; all others stay behind them.

    Args:
        store: The database.
        pool: Where they are from.
        block: The candidates of the first depth, scored; at least one.
        context: What the stages know.
    """
    about = _about(block, context)
    example = _example(block, about)
    if example is None:
        return
    best = best_first(block)
    first, rest = best[:DEPTH], best[DEPTH:]
    if example in rest:
        rest.remove(example)
        first.append(example)
    await read_compared(store, pool, first, [example])
    if not likeness(example, 1):
        return  # it was replaced in between
    sure = about[example.chunk_id]
    alike = kinship(
        np.array([(likeness(item, 1) or [0.0])[0] for item in first]),
        np.array([about[item.chunk_id] for item in first]),
        example=sure,
    )
    weight = sure * signal_weight(context.plan.informative, 1.0)
    for item, value in zip(first, alike.tolist(), strict=True):
        blend(item, NAME, value, weight, kinship=value, share=weight)
    put_behind(rest, first, NAME)


def _about(block: Sequence[Candidate], context: Context) -> dict[str, float]:
    """How much each candidate is about what is excluded, by its chunkId."""
    shares = aboutness(*exclusion.closeness(block, context)).tolist()
    return {item.chunk_id: share for item, share in zip(block, shares, strict=True)}


def _example(block: Sequence[Candidate], about: Mapping[str, float]) -> Candidate | None:
    """The candidate with an embedding that is most about what is excluded, if any is at all."""
    known = [item for item in block if item.semantic is not None and about[item.chunk_id] > 0]
    return max(known, key=lambda item: about[item.chunk_id], default=None)
