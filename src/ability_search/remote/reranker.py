"""The reranker port over any server that answers in the shape of Cohere's and Jina's APIs."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ability_search.errors import RerankerUnavailable
from ability_search.remote.breaker import CircuitBreaker

log = logging.getLogger(__name__)

# What a server may exceed [0, 1] by and still mean a share of 1.
_ROUNDING = 1e-6


class RerankTransport(Protocol):
    """Brings one request to a rerank server."""

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send ``{model?, query, documents}`` and return the server's answer.

        Raises:
            RerankerUnavailable: with ``retryable`` false on the instance where trying again
                cannot help.
        """


class UnusableScores(RerankerUnavailable):
    """The reranker answered with something that says nothing about the texts."""

    retryable = False
    default_hint = "Use another reranker; what this one answers is of no use."


class RemoteReranker:
    """A :class:`~ability_search.ports.Reranker` over a transport.

    A query waits for it, so a request is made once; a server that keeps failing is left alone.

    Args:
        transport: Brings requests to the server.
        model: The default; ``None`` leaves the choice to the server.
        timeout: Longest wait for a request, in seconds.
        breaker_failures: Failures in a row after which requests fail at once.
        breaker_reset: Seconds until a request is let through again.
    """

    def __init__(
        self,
        transport: RerankTransport,
        *,
        model: str | None,
        timeout: float,
        breaker_failures: int,
        breaker_reset: float,
    ) -> None:
        self._transport = transport
        self._model = model
        self._timeout = timeout
        self.breaker = CircuitBreaker(limit=breaker_failures, reset=breaker_reset)

    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, timeout: float
    ) -> list[float]:
        """Score ``texts``; logits are mapped to [0, 1] by the logistic function."""
        if not texts:
            return []
        started = time.perf_counter()
        request: dict[str, Any] = {"query": query, "documents": list(texts)}
        if chosen := model or self._model:
            request["model"] = chosen
        with self.breaker.watching(RerankerUnavailable, "the reranker"):
            answer = await self._ask(request, min(timeout, self._timeout))
        log.debug("reranked %d texts in %.1f ms", len(texts), (time.perf_counter() - started) * 1e3)
        scores = read_scores(answer, expected=len(texts))
        if len(set(scores)) == 1 and len(set(texts)) > 1:
            raise UnusableScores("the reranker gave every text the same score")
        return shares(scores)

    async def _ask(self, request: Mapping[str, Any], timeout: float) -> Any:
        try:
            # Transports may bound each step of theirs only, not the whole.
            async with asyncio.timeout(timeout):
                return await self._transport(request, timeout=timeout)
        except TimeoutError as exc:
            raise RerankerUnavailable(
                f"the reranker did not answer within {timeout:.3g} s"
            ) from exc


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
