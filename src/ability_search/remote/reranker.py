"""The reranker port over any server that answers in the shape of Cohere's and Jina's APIs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ability_search.errors import RerankerUnavailable
from ability_search.remote.consulted import Consulted
from ability_search.remote.refusals import Objection, refused
from ability_search.remote.transports import HttpService

# What a server may exceed [0, 1] by and still mean a share of 1.
_ROUNDING = 1e-6
_HINTS = {
    "model": "Name a reranker that is served there, or have it serve this one.",
    "texts": "Have fewer hits read, or index with shorter chunks.",
    "key": "Check SEARCH_RERANKER_API_KEY and SEARCH_RERANKER_API_URL.",
}


class UnusableScores(RerankerUnavailable):
    """The reranker answered with something that says nothing about the texts."""

    retryable = False
    default_hint = "Use another reranker; what this one answers is of no use."


def _failure(objection: Objection, request: Mapping[str, Any]) -> RerankerUnavailable:
    return refused(RerankerUnavailable, objection, request, what="rerank", hints=_HINTS)


RERANK = HttpService(
    tool="rerank",
    answered="results",
    unavailable=RerankerUnavailable,
    failure=_failure,
    api="the rerank API",
    route="rerank",
)


class RemoteReranker(Consulted):
    """A :class:`~ability_search.ports.Reranker` over a transport."""

    service = RERANK
    who = "the reranker"

    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, timeout: float
    ) -> list[float]:
        """Score ``texts``; logits are mapped to [0, 1] by the logistic function."""
        if not texts:
            return []
        request = {"query": query, "documents": list(texts)}
        answer = await self._ask(request, model=model, timeout=timeout)
        scores = read_scores(answer, expected=len(texts))
        if len(set(scores)) == 1 and len(set(texts)) > 1:
            raise UnusableScores("the reranker gave every text the same score")
        return shares(scores)


def read_scores(answer: Any, *, expected: int) -> list[float]:
    """Read ``{results: [{index, relevance_score}]}``: scores in the order of their index.

    Raises:
        UnusableScores: if a score is missing, doubled or not a finite number.
    """
    try:
        rows = sorted(answer["results"], key=lambda row: row["index"])
        scores = [float(row["relevance_score"]) for row in rows]
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise UnusableScores("the reranker's answer is not in the shape of a ranking") from exc
    if [row["index"] for row in rows] != list(range(expected)):
        raise UnusableScores(f"the reranker answered {len(rows)} scores for {expected} texts")
    if not all(map(math.isfinite, scores)):
        raise UnusableScores("the reranker answered scores that are not finite")
    return scores


def shares(scores: Sequence[float]) -> list[float]:
    """Scores in [0, 1], in the same order of size; what lies there already stays as it is.

    Some servers send logits, recognised by one outside [0, 1]: of those the logistic function.
    """
    if all(-_ROUNDING <= score <= 1 + _ROUNDING for score in scores):
        return [min(max(score, 0.0), 1.0) for score in scores]
    return [_logistic(score) for score in scores]


def _logistic(logit: float) -> float:
    # exp() of what is not positive never overflows.
    small = math.exp(-abs(logit))
    return 1 / (1 + small) if logit >= 0 else small / (1 + small)
