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
from kadi_localnet.models.requests import Embedded, Vectors, encodable
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
        request: dict[str, Any] = {
            "input": [encodable(text) for text in texts],
            "encoding_format": "float",
        }
        if dimensions is not None:
            request["dimensions"] = dimensions
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
