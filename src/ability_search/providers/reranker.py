"""The reranker port over servers with a rerank API as of Cohere and Jina."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ability_search.errors import RerankerUnavailable
from ability_search.providers.model_calls import ModelClient
from ability_search.providers.transports import Service

# Tolerance by which scores in [0, 1] may exceed that range.
_ROUNDING = 1e-6
_HINTS = {
    "model": "Choose a reranker that the server offers, or add this one to the server.",
    "texts": "Rerank fewer hits, or index with shorter chunks.",
    "key": "Check SEARCH_RERANKER_API_KEY and SEARCH_RERANKER_API_URL.",
}


class UnusableScores(RerankerUnavailable):
    """The reranker returned unusable scores."""

    retryable = False
    default_hint = "Use another reranker; this one returns unusable scores."


RERANK = Service(
    tool="rerank",
    agent_setting="SEARCH_RERANKER_AGENT",
    route="rerank",
    answered="results",
    who="the reranker",
    api="the rerank API",
    verb="rerank",
    unavailable=RerankerUnavailable,
    hints=_HINTS,
)


class RemoteReranker(ModelClient):
    """A :class:`~ability_search.ports.RerankerPort` over a transport."""

    service = RERANK

    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, timeout: float
    ) -> list[float]:
        """Return a score in [0, 1] for each text; logits are mapped by the logistic function."""
        if not texts:
            return []
        request = {"query": query, "documents": list(texts)}
        answer = await self._ask(request, model=model, timeout=timeout)
        scores = read_scores(answer, expected=len(texts))
        if len(set(scores)) == 1 and len(set(texts)) > 1:
            raise UnusableScores("the reranker returned the same score for all texts")
        return shares(scores)


def read_scores(answer: Any, *, expected: int) -> list[float]:
    """Return the scores of ``{results: [{index, relevance_score}]}``, ordered by index.

    Raises:
        UnusableScores: if a score is missing, repeated or not a finite number.
    """
    try:
        rows = sorted(answer["results"], key=lambda row: row["index"])
        scores = [float(row["relevance_score"]) for row in rows]
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise UnusableScores("the reranker's answer does not have the expected shape") from exc
    if [row["index"] for row in rows] != list(range(expected)):
        raise UnusableScores(f"the reranker returned {len(rows)} scores for {expected} texts")
    if not all(map(math.isfinite, scores)):
        raise UnusableScores("the reranker returned scores that are not finite")
    return scores


def shares(scores: Sequence[float]) -> list[float]:
    """Map scores to [0, 1], keeping their order.

    Scores that all lie in [0, 1] are unchanged. If one lies outside, all are logits, as some
    servers send them, and are mapped by the logistic function.
    """
    if all(-_ROUNDING <= score <= 1 + _ROUNDING for score in scores):
        return [min(max(score, 0.0), 1.0) for score in scores]
    return [_logistic(score) for score in scores]


def _logistic(logit: float) -> float:
    # exp() of a number that is not positive never overflows.
    small = math.exp(-abs(logit))
    return 1 / (1 + small) if logit >= 0 else small / (1 + small)
