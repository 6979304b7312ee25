"""Rerankers on an upstream server: Jina, Cohere, vLLM, llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import msgspec

from kadi_localnet.models.config import Upstream
from kadi_localnet.models.errors import UpstreamFailed
from kadi_localnet.models.requests import encodable
from kadi_localnet.models.reranking import Reranked
from kadi_localnet.models.upstream import UpstreamClient


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Usage(msgspec.Struct):
    total_tokens: int = 0


class _Answer(msgspec.Struct):
    results: list[_Result]
    usage: _Usage | None = None


_answers = msgspec.json.Decoder(_Answer)


class RemoteReranker:
    """A reranker on an upstream server."""

    def __init__(self, name: str, upstream: Upstream, client: httpx.AsyncClient) -> None:
        self.name = name
        self._upstream = UpstreamClient(name, upstream, client, route="rerank")

    async def rerank(
        self, query: str, texts: Sequence[str], *, timeout: float, api_key: str | None = None
    ) -> Reranked:
        """Score ``texts`` upstream; ``timeout`` includes all attempts and the pauses between them.

        Scores are those of the server and need not lie in [0, 1]; ``tokens`` is 0 if the server
        reports none.

        Raises:
            UpstreamFailed: if there is no usable answer; its text never contains the key.
            DeadlinePassed: after ``timeout`` seconds.
        """
        documents = [encodable(text) for text in texts]
        request = {"query": encodable(query), "documents": documents}
        raw = await self._upstream.ask(request, timeout=timeout, api_key=api_key)
        return read_scores(raw, len(texts))


def read_scores(raw: bytes, count: int) -> Reranked:
    """Parse an upstream answer to ``count`` texts into scores in the order of the texts.

    Raises:
        UpstreamFailed: if the answer does not have the expected shape, a text is missing or
            repeated, or a score is not finite.
    """
    try:
        answer = _answers.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise UpstreamFailed(f"upstream answer is not a list of scores: {exc}") from exc
    results = sorted(answer.results, key=lambda result: result.index)
    if [result.index for result in results] != list(range(count)):
        raise UpstreamFailed(f"upstream returned {len(results)} scores for {count} texts")
    scores = [result.relevance_score for result in results]
    return Reranked(scores, answer.usage.total_tokens if answer.usage else 0)
