"""Stages between candidates and hits, in the order they run. Pure, except for the clock.

1. Fusion (:mod:`ability_search.querying.fusing`): one score for each candidate, in blocks.
2. The adjustments of :data:`ADJUSTMENTS`: each changes scores; none reorders a list.
3. The floor of ``minScore`` (:func:`above`).

A stage whose option is off leaves every score exactly as it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ability_search.querying.adjusting import Adjustment, Context, best_first, put_behind
from ability_search.querying.candidates import Pool
from ability_search.querying.decay import DECAY
from ability_search.querying.exclusion import EXCLUSION
from ability_search.querying.fulltext import FULL_TEXT
from ability_search.querying.fusing import blocks
from ability_search.querying.lifting import LIFT
from ability_search.querying.model import Candidate, Mode, Query
from ability_search.querying.ordering import ORDER
from ability_search.querying.rules import RULES
from ability_search.querying.temporal import TEMPORAL
from ability_search.querying.timings import Timings

DEPTH = "depth"
"""Name in ``explain`` of the rule that hits stay behind those of a shallower search."""

ADJUSTMENTS: tuple[Adjustment, ...] = (LIFT, FULL_TEXT, TEMPORAL, ORDER, EXCLUSION, RULES, DECAY)


def columns(query: Query) -> list[str]:
    """Return the candidate columns that the stages of a query need, each once."""
    return list(dict.fromkeys(name for stage in ADJUSTMENTS for name in stage.columns(query)))


def ordered(
    blocks: Sequence[Sequence[Candidate]], context: Context, clock: Timings | None = None
) -> list[Candidate]:
    """Adjust scored blocks and concatenate them into one list, best first; ties by chunkId.

    Candidates that only a deeper search finds come after those of a shallower one, with their
    scores scaled below: all pages of a query are slices of one list, at any search depth.

    Args:
        blocks: The candidates that each depth adds.
        context: Context of the stages.
        clock: Receives the time of each stage that changed anything.
    """
    listed: list[Candidate] = []
    for block in blocks:
        for stage in ADJUSTMENTS:
            started = time.perf_counter()
            stage.adjust(block, context)
            if clock is not None and any(stage.name in item.trace for item in block):
                clock.add(stage.name, time.perf_counter() - started)
        put_behind(block, listed, DEPTH)
        listed += best_first(block)
    for place, item in enumerate(listed):
        item.place = place
    return listed


def ranked(pool: Pool, context: Context) -> list[Candidate]:
    """Score and sort all candidates, see :func:`ordered`."""
    return ordered(blocks(pool, context.plan, context.query, context.ranking), context)


def foreseen(pool: Pool, context: Context) -> list[Candidate]:
    """Return :func:`ranked` for steps that read the first hits, without traces for ``explain``."""
    told = [(item, item.trace) for item in (*pool.candidates, *pool.chunks)]
    for item, trace in told:
        item.trace = dict(trace)
    found = ranked(pool, context)
    for item, trace in told:
        item.trace = trace
    return found


def above(candidates: Sequence[Candidate], floor: float | None, *, mode: Mode) -> list[Candidate]:
    """Drop candidates below ``minScore``: by cosine, in keyword mode by normalized BM25.

    For a candidate found by an aspect, the cosine of the aspect counts as well.
    """
    if floor is None:
        return list(candidates)
    if mode == "keyword":
        return [item for item in candidates if item.fused >= floor]
    return [
        item
        for item in candidates
        if any(
            cosine is not None and cosine >= floor for cosine in (item.cosine, item.aspect_cosine)
        )
    ]
