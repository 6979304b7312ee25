"""Contrastive feedback: what is excluded shows what to prefer.

The query ``database work besides the audit log migration`` implies that the migration is such work.
The chunk that is most about the excluded phrase shows what such work looks like, which the name of
a broad topic does not. Similarity to that chunk joins the score, before everything about the
excluded phrase is demoted. As in :mod:`.feedback`, chunks are compared where their rows are read
anyway.
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
    """Return whether the query excludes something and feedback applies."""
    return possible(pool, context) and bool(context.query.excluded)


async def learn(store: Store, pool: Pool, block: Sequence[Candidate], context: Context) -> None:
    """Rescore the first candidates, and read their rows; all others stay behind them.

    Args:
        store: The database.
        pool: The pool they are from.
        block: The candidates of the first depth, scored; at least one.
        context: Context of the stages.
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
        return  # it was replaced meanwhile
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
    """Return how much each candidate is about the excluded phrases, by chunkId."""
    shares = aboutness(*exclusion.closeness(block, context)).tolist()
    return {item.chunk_id: share for item, share in zip(block, shares, strict=True)}


def _example(block: Sequence[Candidate], about: Mapping[str, float]) -> Candidate | None:
    """Return the embedded candidate most about the excluded phrases; ``None`` if there is none."""
    known = [item for item in block if item.semantic is not None and about[item.chunk_id] > 0]
    return max(known, key=lambda item: about[item.chunk_id], default=None)
