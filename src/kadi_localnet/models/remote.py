"""Embedding models on an OpenAI-compatible server: Ollama, vLLM, OpenAI itself."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import numpy as np

from kadi_localnet.models.config import Upstream
from kadi_localnet.models.errors import UpstreamFailed
from kadi_localnet.models.requests import Embedded, Reranked, Vectors, encodable
from kadi_localnet.models.upstream import UpstreamClient


class _Item(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: _Usage | None = None


_answers = msgspec.json.Decoder(_Answer)


class RemoteModel:
    """An embedding model on an upstream server."""

    def __init__(self, name: str, upstream: Upstream, client: httpx.AsyncClient) -> None:
        self.name = name
        self._upstream = UpstreamClient(name, upstream, client, route="embeddings")
        self._takes_format = True

    async def embed(
        self,
        texts: Sequence[str],
        *,
        timeout: float,
        dimensions: int | None = None,
        api_key: str | None = None,
    ) -> Embedded:
        """Embed ``texts`` upstream; ``timeout`` includes all attempts and the pauses between them.

        ``tokens`` is the number reported by the server, 0 if it reports none.

        Raises:
            UpstreamFailed: if there is no usable answer; its text never contains the key.
            DeadlinePassed: after ``timeout`` seconds.
        """
        request: dict[str, Any] = {"input": [encodable(text) for text in texts]}
        if self._takes_format:
            request["encoding_format"] = "float"
        if dimensions is not None:
            request["dimensions"] = dimensions
        try:
            raw = await self._upstream.ask(request, timeout=timeout, api_key=api_key)
        except UpstreamFailed as exc:
            if not self._takes_format or "encoding_format" not in str(exc):
                raise
            # It refuses the field; without it, floats are the default.
            self._takes_format = False
            del request["encoding_format"]
            raw = await self._upstream.ask(request, timeout=timeout, api_key=api_key)
        return read_answer(raw, len(texts))


def read_answer(raw: bytes, count: int) -> Embedded:
    """Parse an upstream answer to ``count`` texts into vectors in the order of the texts.

    Raises:
        UpstreamFailed: if the answer does not have the expected shape, a text is missing or
            repeated, the vectors differ in dimensions, or a value is not finite.
    """
    try:
        answer = _answers.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise UpstreamFailed(f"upstream answer is not a list of embeddings: {exc}") from exc
    items = answer.data
    places = [place if item.index is None else item.index for place, item in enumerate(items)]
    if sorted(places) != list(range(count)):
        raise UpstreamFailed(f"upstream returned {len(items)} embeddings for {count} texts")
    rows = [_row(item.embedding) for item in items]
    dimensions = len(rows[0])
    if not dimensions or any(len(row) != dimensions for row in rows):
        raise UpstreamFailed("upstream returned vectors of different or no dimensions")
    vectors = np.empty((count, dimensions), np.float32)
    vectors[places] = rows
    if not np.isfinite(vectors).all():
        raise UpstreamFailed("upstream returned values that are not finite")
    return Embedded(vectors, answer.usage.prompt_tokens if answer.usage else 0)


def _row(embedding: list[float] | str) -> Vectors:
    if isinstance(embedding, str):
        try:
            return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        except (binascii.Error, ValueError) as exc:
            raise UpstreamFailed("upstream returned base64 that is not float32") from exc
    # A value beyond float32 becomes infinite, which the caller rejects.
    with np.errstate(over="ignore"):
        return np.asarray(embedding, np.float32)


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _RerankUsage(msgspec.Struct):
    total_tokens: int = 0


class _RerankAnswer(msgspec.Struct):
    results: list[_Result]
    usage: _RerankUsage | None = None


_rerank_answers = msgspec.json.Decoder(_RerankAnswer)


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
        answer = _rerank_answers.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise UpstreamFailed(f"upstream answer is not a list of scores: {exc}") from exc
    results = sorted(answer.results, key=lambda result: result.index)
    if [result.index for result in results] != list(range(count)):
        raise UpstreamFailed(f"upstream returned {len(results)} scores for {count} texts")
    scores = [result.relevance_score for result in results]
    return Reranked(scores, answer.usage.total_tokens if answer.usage else 0)
