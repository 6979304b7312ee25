"""Implicit pseudo-relevance feedback: the first hits of a hybrid query move its vector slightly.

The first hits are compared with each other where their rows are read anyway, so there is no extra
round trip. The first :data:`DEPTH` candidates get the scores of a search by the moved vector; all
others keep their order behind them.

The best score must not rise by that: where all texts are alike, the moved vector is close to every
one of them, whatever the query. So after phrase match all scores are divided by how much it rose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.documents import Floats
from ability_search.search.candidates import (
    Candidate,
    Candidates,
    adjust,
    best_first,
    put_behind,
    scale,
)
from ability_search.search.fusion import normalized_cosine
from ability_search.search.stage import Ports, Stage
from ability_search.search.stages.time_closeness import time_signal

TAU: Final = 0.1
DEPTH: Final = 20
"""Number of candidates that are rescored."""
LEARNED: Final = 3
"""Number of first hits used as feedback."""


def feedback_weights(scores: npt.ArrayLike, *, tau: float = TAU) -> Floats:
    """Return the weight of each hit: ``exp((s_j - s_1) / tau)``, scaled to sum 1.

    A clear winner gets nearly all the weight; hits of equal score get equal weights.

    Args:
        scores: scores of the hits, the best of them ``s_1``, shape (m,), m >= 1.
        tau: difference in score that makes a factor of e; > 0.
    """
    found = np.asarray(scores, dtype=np.float64)
    raw = np.exp((found - found.max()) / tau)
    return np.asarray(raw / raw.sum())


def rocchio_cosines(
    cosines: npt.ArrayLike,
    likeness: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    beta: float,
) -> Floats:
    """Return cosines to the query vector moved towards its first hits, without computing it.

    For ``q + beta sum_j w_j t_j`` (Rocchio, Relevance Feedback in Information Retrieval, 1971) the
    cosine of a chunk d is, all vectors being of unit length::

        (q.d + beta sum_j w_j t_j.d)
        / sqrt(1 + 2 beta sum_j w_j q.t_j + beta^2 sum_jk w_j w_k t_j.t_k)

    Args:
        cosines: cosines of n chunks to the query, shape (n,); the m feedback chunks come first.
        likeness: cosines of each chunk to those m, shape (n, m), m <= n.
        weights: weights of those m, shape (m,), summing to 1.
        beta: how far the vector moves; 0 leaves the cosines unchanged.

    Returns:
        Shape (n,).
    """
    own, like, share = (np.asarray(each, np.float64) for each in (cosines, likeness, weights))
    count = len(share)
    towards = own[:count] @ share
    together = share @ like[:count] @ share
    length = np.sqrt(1 + 2 * beta * towards + beta**2 * together)
    return np.asarray((own + beta * like @ share) / length)


def feedback_applies(candidates: Candidates) -> bool:
    """Return whether feedback applies: both retrievers searched, default fusion, no dates.

    If dates count, the first hits by words and meaning alone may be exactly what is not wanted.
    """
    asked, plan = candidates.query.asked, candidates.plan
    both = plan.vector is not None and plan.terms is not None and not candidates.failed
    default = asked.fusion is None and asked.prf is None and candidates.ranking.feedback > 0
    dated = time_signal(plan, candidates.query) is not None
    return bool(candidates.blocks) and both and default and not dated


async def apply_feedback(candidates: Candidates, ports: Ports) -> None:
    """Rescore the first candidates, and read their rows."""
    best = best_first(candidates.blocks[0])
    first, rest = best[:DEPTH], best[DEPTH:]
    examples = [item for item in first if item.semantic is not None][:LEARNED]
    if not examples:
        return
    await read_compared(candidates, first, examples, ports)
    _rescore(first, examples, candidates)
    put_behind(rest, first, NAME)


async def read_compared(
    candidates: Candidates, items: Sequence[Candidate], examples: Sequence[Candidate], ports: Ports
) -> None:
    """Read the rows of candidates, and their cosines to the feedback hits."""
    found = await ports.store.chunks(
        candidates.collection.type,
        [item.rid for item in items],
        compared=[item.rid for item in examples],
    )
    rows = {row.rid: row for row in found}
    for item in items:
        item.row = rows.get(item.rid)


def cosines_to(item: Candidate, count: int) -> list[float]:
    """Return the cosines of a candidate to the feedback hits; empty if any is unknown."""
    cosines = item.row.cosines if item.row is not None else ()
    known = [float(cosine) for cosine in cosines if cosine is not None]
    return known if item.semantic is not None and len(known) == count else []


def _rescore(
    first: Sequence[Candidate], examples: Sequence[Candidate], candidates: Candidates
) -> None:
    alike = {item.chunk_id: cosines_to(item, len(examples)) for item in first}
    if any(not alike[item.chunk_id] for item in examples):
        return  # one of them was replaced meanwhile
    chosen = {item.chunk_id for item in examples}
    others = [item for item in first if alike[item.chunk_id] and item.chunk_id not in chosen]
    items = [*examples, *others]
    cosines = [item.semantic or 0.0 for item in items]
    moved = rocchio_cosines(
        cosines,
        [alike[item.chunk_id] for item in items],
        feedback_weights([item.score for item in examples]),
        beta=candidates.ranking.feedback,
    )
    share = candidates.weights["semantic"]
    chance = candidates.plan.chance
    gains = share * (normalized_cosine(moved, chance) - normalized_cosine(cosines, chance))
    best = max(item.score for item in items)
    for item, gain, cosine in zip(items, gains.tolist(), moved.tolist(), strict=True):
        adjust(item, NAME, min(1.0, max(0.0, item.score + gain)), cosine=cosine)
    if best > 0:
        candidates.rise = max(item.score for item in items) / best


async def keep_level(candidates: Candidates, _ports: Ports) -> None:
    """Divide all scores by how much feedback raised the best one."""
    for item in candidates.blocks[0]:
        scale(item, LEVEL, 1 / candidates.rise)


NAME = "feedback"
LEVEL = "level"
FEEDBACK = Stage(
    NAME,
    apply_feedback,
    lambda candidates: feedback_applies(candidates) and not candidates.query.intent.excluded,
    step=NAME,
)
FEEDBACK_LEVEL = Stage(LEVEL, keep_level, lambda candidates: candidates.rise > 1, computes=True)
