"""Reranking: a reranker scores the first hits and sets their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ability_search.errors import RerankerUnavailable
from ability_search.index.preparation import embedded_text
from ability_search.querying.adjusting import adjust, put_behind
from ability_search.querying.answers import Found, Listed, together
from ability_search.querying.model import Candidate, Query, QueryAnswer
from ability_search.querying.options import RerankerChoice
from ability_search.querying.rows import read_rows
from ability_search.querying.steps import Reach

STAGE = "reranker"
_LEAST = 1e-9
"""Minimum score of a reranked hit, so that there is room for the others below it."""


async def rerank(
    lists: Sequence[Listed],
    query: Query,
    choice: RerankerChoice,
    reach: Reach,
    answer: QueryAnswer,
) -> None:
    """Rerank the first hits of all lists together; all other hits go behind them.

    They are scored in one request for all collections, so that their scores are comparable: the
    score of each is the reranker's. If the reranker is unavailable, or its answer unusable,
    nothing changes and the answer gets a warning.

    Args:
        lists: The candidates, each list best first; sorted into the new order.
        query: The query.
        choice: Number of hits and model.
        reach: Ports and settings.
        answer: Receives the warning.
    """
    every = together([Found(own.pool.collection, item) for item in own.found] for own in lists)
    first = every[: choice.top]
    await read_rows(reach.store, first)
    read = [each.candidate for each in first if each.candidate.row is not None]
    if not read:
        return
    try:
        scores = await reach.reranker.rerank(
            choice.model,
            query.text,
            [_text(item.row or {}) for item in read],
            timeout=reach.settings.reranker.timeout,
        )
    except RerankerUnavailable as exc:
        answer.warnings.append(f"the hits were not reranked: {exc}. {exc.hint}")
        return
    _score_anew(read, scores, [each.candidate for each in every])
    for own in lists:
        own.found.sort(key=lambda item: (-item.score, item.chunk_id if item.score else ""))


def _text(row: Mapping[str, Any]) -> str:
    return embedded_text(row["title"], row["content"], breadcrumb=row.get("breadcrumb") or "")


def _score_anew(
    read: Sequence[Candidate], scores: Sequence[float], every: Sequence[Candidate]
) -> None:
    for item, score in zip(read, scores, strict=True):
        item.values[STAGE] = score
        adjust(item, STAGE, max(score, _LEAST))
    put_behind([item for item in every if STAGE not in item.values], read, STAGE)
