"""The stages between candidates and hits, in the order they run. Pure, but for the clock.

1. Fusion (:mod:`ability_search.querying.fusing`): one score for each candidate, in blocks.
2. The adjustments of :data:`ADJUSTMENTS`: each changes scores, none the order of another's list.
3. The floor of ``minScore`` (:func:`above`).

A stage whose option is not given leaves every score exactly as it is.
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
"""What it is called in ``explain`` that a hit stays behind those of a shallower search."""

ADJUSTMENTS: tuple[Adjustment, ...] = (LIFT, FULL_TEXT, TEMPORAL, ORDER, EXCLUSION, RULES, DECAY)


def columns(query: Query) -> list[str]:
    """The columns of candidates that the stages of a query need, each once."""
    return list(dict.fromkeys(name for stage in ADJUSTMENTS for name in stage.columns(query)))


def ordered(
    blocks: Sequence[Sequence[Candidate]], context: Context, clock: Timings | None = None
) -> list[Candidate]:
    """Put scored blocks into one list, best first; equal scores in the order of their chunkIds.

    What only a deeper search finds comes after all that a shallower one finds, its scores scaled
    to theirs: so the pages of a query are cut from one list, however deep each has to look.

    Args:
        blocks: What the search of each depth adds.
        context: What the stages know.
        clock: Told what each stage took that changed anything.
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
    """Score all candidates and put them in order, see :func:`ordered`."""
    return ordered(blocks(pool, context.plan, context.query, context.ranking), context)


def foreseen(pool: Pool, context: Context) -> list[Candidate]:
    """As :func:`ranked`, for those who look at the first hits; ``explain`` is not told of it."""
    told = [(item, item.trace) for item in (*pool.candidates, *pool.chunks)]
    for item, trace in told:
        item.trace = dict(trace)
    found = ranked(pool, context)
    for item, trace in told:
        item.trace = trace
    return found


def above(candidates: Sequence[Candidate], floor: float | None, *, mode: Mode) -> list[Candidate]:
    """Leave out what is below ``minScore``: by its cosine, in keyword mode by its BM25.

    What was found by an aspect may be as close by that.
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
