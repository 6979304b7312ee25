"""The option ``diversity``: variety among the first hits, by maximal marginal relevance.

Maximal marginal relevance: Carbonell & Goldstein, The Use of MMR, Diversity-Based Reranking for
Reordering Documents and Producing Summaries (1998).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter

import numpy as np
import numpy.typing as npt

from ability_search.documents import Floats
from ability_search.errors import DatabaseUnavailable
from ability_search.search.candidates import Candidates, adjust, put_behind
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Wants
from ability_search.store.pages import read_chunks
from ability_search.store.values import Columns

_TIMES = 3
"""Candidates compared per hit on the page."""
_LEAST = 30
_MOST = 300
"""Maximum number of candidates compared; hits beyond keep their order."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A candidate in its new place."""

    place: int
    """Previous place, from 0."""
    score: float
    similarity: float
    """Similarity to the most similar candidate picked before."""


def similarities(vectors: npt.ArrayLike) -> Floats:
    """Return the cosines between unit vectors, shape (n, n); negative ones as 0.

    Args:
        vectors: shape (n, d); a zero vector is similar to nothing.
    """
    unit = np.asarray(vectors, dtype=np.float64)
    # Single precision: two vectors have the same cosine, however many others are compared.
    return np.clip(unit @ unit.T, 0.0, 1.0).astype(np.float32).astype(np.float64)


def diversified(
    relevance: Sequence[float],
    similarity: Floats,
    ids: Sequence[str],
    *,
    trade_off: float,
    reach: Sequence[int],
) -> list[Pick]:
    """Pick candidates one by one by maximal marginal relevance.

    Each pick has the highest ``trade_off relevance + (1 - trade_off) (1 - s)``, where ``s`` is its
    similarity to the most similar one picked before, 0 for the first. This is the paper's criterion
    plus ``1 - trade_off``, which keeps it in [0, 1] and preserves the order. The value is the score
    of the pick, but never above that of the previous pick.

    Args:
        relevance: relevance of the candidates, best first, in [0, 1], shape (n,).
        similarity: similarity between them, in [0, 1], shape (n, n).
        ids: ids of the candidates; ties go to the smallest id.
        trade_off: 1 is relevance only, 0 diversity only.
        reach: number of first candidates that each pick chooses from, ascending, one per pick;
            at least ``i + 1`` for pick ``i``.

    Returns:
        The picks, by descending score, ties by id.
    """
    worth = trade_off * np.asarray(relevance, dtype=np.float64)
    nearest = np.zeros(len(worth))
    left = np.ones(len(worth), np.bool_)
    picks: list[Pick] = []
    for within in reach:
        value = np.where(left, worth + (1 - trade_off) * (1 - nearest), -1.0)[:within]
        best = float(value.max())
        place = min(np.flatnonzero(value == best).tolist(), key=ids.__getitem__)
        if picks and (-best, ids[place]) < (-picks[-1].score, ids[picks[-1].place]):
            best = max(0.0, nextafter(picks[-1].score, -1.0))
        picks.append(Pick(place, best, float(nearest[place])))
        left[place] = False
        nearest = np.maximum(nearest, similarity[place])
    return picks


def reach_of(picks: int) -> int:
    """Return how many of the first candidates the last of ``picks`` picks chooses from."""
    return min(_MOST, max(_LEAST, _TIMES * picks))


async def diversify(trade_off: float, candidates: Candidates, ports: Ports) -> None:
    """Reorder the first hits by maximal marginal relevance.

    Each pick chooses among the candidates that ranked first before any were removed. Their number
    depends on the pick, not on the page, so that all pages of a query are slices of one list.
    """
    ranked = candidates.ranked
    most = min(candidates.query.end, _MOST, len(ranked))
    ordered = sorted(item.place for item in ranked)
    # How many each pick chooses from: at least one that is left.
    reaches = [max(bisect_left(ordered, reach_of(n)), n) for n in range(1, most + 1)]
    if not reaches:
        return
    first, rest = ranked[: reaches[-1]], ranked[reaches[-1] :]
    handles, own = [item.handle for item in first], candidates.collection
    try:
        rows = await read_chunks(ports.store, handles, own, Columns(("handle", "embedding")))
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"diversity was not applied: {exc}")
        return
    # A chunk that was replaced meanwhile has a zero vector.
    nothing = [0.0] * own.dimensions
    vectors = [rows.get(each, {}).get("embedding") or nothing for each in handles]
    picks = diversified(
        [item.score for item in first],
        similarities(vectors),
        [item.chunk_id for item in first],
        trade_off=trade_off,
        reach=reaches,
    )
    chosen = [first[pick.place] for pick in picks]
    for item, pick in zip(chosen, picks, strict=True):
        adjust(item, NAME, pick.score, similarity=pick.similarity)
    places = {pick.place for pick in picks}
    behind = [item for place, item in enumerate(first) if place not in places] + rest
    put_behind(behind, chosen, NAME)
    candidates.ranked = chosen + behind


NAME = "diversity"
DIVERSITY = Stage(
    NAME,
    Phase.SELECT,
    30,
    diversify,
    option=lambda asked: (
        asked.diversity if asked.diversity is not None and asked.diversity < 1 else None
    ),
    wants=lambda _, query: Wants(depth=reach_of(query.end)),
)
