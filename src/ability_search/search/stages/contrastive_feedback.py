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

from ability_search.documents import Floats
from ability_search.search.candidates import Candidate, Candidates, best_first, blend, put_behind
from ability_search.search.fusion import signal_weight
from ability_search.search.stage import Ports, Stage
from ability_search.search.stages.exclusion_penalty import aboutness, closeness
from ability_search.search.stages.feedback import (
    DEPTH,
    cosines_to,
    feedback_applies,
    read_compared,
)


def kinship(likeness: Floats, about: Floats, *, example: float) -> Floats:
    """Return how similar candidates are to an excluded example without being about the exclusion.

    ``max(0, l) max(0, 1 - a / a_1)``: 0 for the example itself, and for candidates that are about
    the excluded phrase as much as the example.

    Args:
        likeness: Cosines to the example, ``l``, shape (n,).
        about: The :func:`aboutness` of the candidates, ``a``, shape (n,).
        example: That of the example, ``a_1``, > 0.

    Returns:
        Shape (n,), in [0, 1].
    """
    return np.asarray(np.clip(likeness, 0.0, 1.0) * np.maximum(0.0, 1.0 - about / example))


async def apply_contrast(candidates: Candidates, ports: Ports) -> None:
    """Rescore the first candidates, and read their rows; all others stay behind them."""
    block = candidates.blocks[0]
    about = _about(block, candidates)
    example = _example(block, about)
    if example is None:
        return
    best = best_first(block)
    first, rest = best[:DEPTH], best[DEPTH:]
    if example in rest:
        rest.remove(example)
        first.append(example)
    await read_compared(candidates, first, [example], ports)
    if not cosines_to(example, 1):
        return  # it was replaced meanwhile
    sure = about[example.chunk_id]
    alike = kinship(
        np.array([(cosines_to(item, 1) or [0.0])[0] for item in first]),
        np.array([about[item.chunk_id] for item in first]),
        example=sure,
    )
    weight = sure * signal_weight(candidates.plan.informative, 1.0)
    for item, value in zip(first, alike.tolist(), strict=True):
        blend(item, NAME, value, weight, kinship=value, share=weight)
    put_behind(rest, first, NAME)


def _about(items: Sequence[Candidate], candidates: Candidates) -> dict[str, float]:
    """Return how much each candidate is about the excluded phrases, by chunkId."""
    columns = candidates.query.excluded_columns
    shares = aboutness(*closeness(columns, items, candidates)).tolist()
    return {item.chunk_id: share for item, share in zip(items, shares, strict=True)}


def _example(items: Sequence[Candidate], about: Mapping[str, float]) -> Candidate | None:
    """Return the embedded candidate most about the excluded phrases; ``None`` if there is none."""
    known = [item for item in items if item.semantic is not None and about[item.chunk_id] > 0]
    return max(known, key=lambda item: about[item.chunk_id], default=None)


NAME = "siblings"
CONTRASTIVE_FEEDBACK = Stage(
    NAME,
    apply_contrast,
    lambda candidates: feedback_applies(candidates) and bool(candidates.query.excluded),
    step=NAME,
)
