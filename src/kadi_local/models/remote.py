"""Models that an OpenAI-compatible server embeds with: Ollama, vLLM, OpenAI itself."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec
import numpy as np
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from kadi_local.models.config import Upstream
from kadi_local.models.errors import DeadlinePassed, UpstreamFailed
from kadi_local.models.requests import Embedded, Vectors

log = logging.getLogger(__name__)

_RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_ENDPOINT = "/v1/embeddings"
_TOLD = 500
_backoff = wait_random_exponential(multiplier=0.25, max=8)


class _Retryable(UpstreamFailed):
    """A failure that may be gone at the next attempt."""


class _Item(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: _Usage | None = None


_answers = msgspec.json.Decoder(_Answer)


def embeddings_url(base_url: str) -> str:
    """Where a base URL takes embedding requests: ``/v1/embeddings`` is appended unless present."""
    base = base_url.rstrip("/")
    if base.endswith(_ENDPOINT):
        return base
    return base + ("/embeddings" if base.endswith("/v1") else _ENDPOINT)


class RemoteModel:
    """One model of an upstream server."""

    def __init__(self, name: str, upstream: Upstream, client: httpx.AsyncClient) -> None:
        self.name = name
        self._upstream = upstream
        self._client = client
        self._url = embeddings_url(upstream.base_url)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        timeout: float,
        dimensions: int | None = None,
        api_key: str | None = None,
    ) -> Embedded:
        """Embed ``texts`` upstream, attempts and the pauses between them included in ``timeout``.

        ``tokens`` is what the server reports, 0 if it reports nothing.

        Raises:
            UpstreamFailed: if no usable answer came; its text never holds the key.
            DeadlinePassed: after ``timeout`` seconds.
        """
        body: dict[str, Any] = {"model": self.name, "input": list(texts)}
        body |= {"encoding_format": "float"}
        if dimensions is not None:
            body["dimensions"] = dimensions
        key = api_key or self._upstream.api_key
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                async for attempt in self._attempts(deadline):
                    with attempt:
                        raw = await self._post(body, key)
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        return read_answer(raw, len(texts))

    def _attempts(self, deadline: float) -> AsyncRetrying:
        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            told = error.retry_after if isinstance(error, UpstreamFailed) else None
            return _backoff(state) if told is None else told

        limit = stop_after_attempt(self._upstream.attempts)

        def stop(state: RetryCallState) -> bool:
            late = asyncio.get_running_loop().time() + state.upcoming_sleep >= deadline
            return late or limit(state)

        def before_sleep(state: RetryCallState) -> None:
            log.warning(
                "upstream of %s failed, attempt %d, next in %.2f s",
                self.name,
                state.attempt_number,
                state.upcoming_sleep,
            )

        return AsyncRetrying(
            retry=retry_if_exception_type(_Retryable),
            wait=wait,
            stop=stop,
            before_sleep=before_sleep,
            reraise=True,
        )

    async def _post(self, body: dict[str, Any], key: str | None) -> bytes:
        content = msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            async with self._client.stream(
                "POST", self._url, content=content, headers=headers
            ) as response:
                raw = await self._read(response)
        except httpx.TransportError as exc:
            raise _Retryable(f"upstream of {self.name}: {type(exc).__name__}") from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            # Its text may quote the header or the URL, credentials included.
            raise UpstreamFailed(f"upstream of {self.name}: {type(exc).__name__}") from None
        if response.is_success:
            return raw
        failure = _Retryable if response.status_code in _RETRIED_STATUS else UpstreamFailed
        raise failure(
            f"upstream of {self.name} answered {response.status_code}{_reason(raw, key)}",
            retry_after=_retry_after(response.headers.get("Retry-After")),
        )

    async def _read(self, response: httpx.Response) -> bytes:
        limit = self._upstream.max_response_bytes
        received = bytearray()
        async for part in response.aiter_bytes():
            received += part
            if len(received) > limit:
                raise UpstreamFailed(f"upstream of {self.name} sent more than {limit} bytes")
        return bytes(received)


def read_answer(raw: bytes, count: int) -> Embedded:
    """Check and order an upstream's answer to ``count`` texts.

    Raises:
        UpstreamFailed: if it is not the expected shape, lacks or repeats a text, or holds vectors
            of unlike dimensions or values that are not finite.
    """
    try:
        answer = _answers.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise UpstreamFailed(f"upstream answer is not a list of embeddings: {exc}") from exc
    items = answer.data
    places = [place if item.index is None else item.index for place, item in enumerate(items)]
    if sorted(places) != list(range(count)):
        raise UpstreamFailed(f"upstream answered {len(items)} embeddings to {count} texts")
    rows = [_row(item.embedding) for item in items]
    dimensions = len(rows[0])
    if not dimensions or any(len(row) != dimensions for row in rows):
        raise UpstreamFailed("upstream answered vectors of unlike or no dimensions")
    vectors = np.empty((count, dimensions), np.float32)
    vectors[places] = rows
    if not np.isfinite(vectors).all():
        raise UpstreamFailed("upstream answered values that are not finite")
    return Embedded(vectors, answer.usage.prompt_tokens if answer.usage else 0)


def _row(embedding: list[float] | str) -> Vectors:
    if isinstance(embedding, str):
        try:
            return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        except (binascii.Error, ValueError) as exc:
            raise UpstreamFailed("upstream answered base64 that is not float32") from exc
    # A value beyond float32 becomes infinite, which the caller refuses.
    with np.errstate(over="ignore"):
        return np.asarray(embedding, np.float32)


def _reason(raw: bytes, key: str | None) -> str:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return ""
    error = body.get("error") if isinstance(body, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str):
        return ""
    return ": " + (text.replace(key, "***") if key else text)[:_TOLD]


def _retry_after(value: str | None) -> float | None:
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
