"""The option ``reranker``: a model that reads query and chunk together orders the first hits."""

from __future__ import annotations

from ability_search.errors import RerankerUnavailable
from ability_search.extensions.reranking import Reranker
from ability_search.search.candidates import Answer, adjust, put_behind
from ability_search.search.hit_rows import read_rows
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Wants
from ability_search.text.model_traits import embedded_text

_LEAST = 1e-9
"""Minimum score of a reranked hit, so that there is room for the others below it."""


async def rerank(option: Reranker, answer: Answer, ports: Ports) -> None:
    """Rerank the first hits; all other hits go behind them.

    Those of all collections are scored in one request, so that their scores are comparable: the
    score of each is the reranker's. If the reranker is unavailable, or its answer unusable,
    nothing changes and the answer gets a warning. A hit that was replaced since it was found is
    not reranked.
    """
    first = answer.ranked[: option.top]
    await read_rows(first, ports)
    read = [(item, item.row) for item in first if item.row is not None]
    if not read:
        return
    texts = [
        embedded_text(row.title, row.content, breadcrumb=row.breadcrumb or "") for _, row in read
    ]
    try:
        scores = await ports.reranker.rerank(
            option.model, answer.query.asked.query, texts, timeout=ports.settings.reranker.timeout
        )
    except RerankerUnavailable as exc:
        answer.warnings.append(f"the hits were not reranked: {exc}. {exc.hint}")
        return
    for (item, _row), score in zip(read, scores, strict=True):
        item.values[NAME] = score
        adjust(item, NAME, max(score, _LEAST))
    unread = [item for item in answer.ranked if NAME not in item.values]
    put_behind(unread, [item for item, _ in read], NAME)


NAME = "reranker"
CROSS_ENCODER = Stage(
    NAME,
    Phase.RERANK,
    0,
    rerank,
    option=lambda asked: asked.reranker,
    wants=lambda option, _: Wants(depth=option.top),
)
