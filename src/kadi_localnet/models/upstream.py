"""Requests to an upstream model server, with retries and limits; errors never show the key."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import msgspec
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from kadi_client.addresses import route_address
from kadi_client.backoff import retry_after
from kadi_localnet.models.config import Upstream
from kadi_localnet.models.errors import DeadlinePassed, UpstreamFailed

log = logging.getLogger(__name__)

_RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_REASON = 500
_backoff = wait_random_exponential(multiplier=0.25, max=8)


class _Retryable(UpstreamFailed):
    """A failure that may be temporary."""


class UpstreamClient:
    """A client for one model of an upstream server at ``route``."""

    def __init__(
        self, model: str, upstream: Upstream, client: httpx.AsyncClient, *, route: str
    ) -> None:
        self.model = model
        self._upstream = upstream
        self._client = client
        self._url = route_address(upstream.base_url, route)

    async def ask(
        self, request: dict[str, Any], *, timeout: float, api_key: str | None = None
    ) -> bytes:
        """Post ``request`` with the model's name and return the body of the response.

        ``timeout`` includes all attempts and the pauses between them. ``api_key`` overrides the
        key of the upstream.

        Raises:
            UpstreamFailed: if no attempt succeeded; its text never contains the key.
            DeadlinePassed: after ``timeout`` seconds.
        """
        body = {"model": self.model, **request}
        key = api_key or self._upstream.api_key
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                async for attempt in self._attempts(deadline):
                    with attempt:
                        return await self._post(body, key)
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        raise AssertionError("unreachable: the last attempt raises")

    def _attempts(self, deadline: float) -> AsyncRetrying:
        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            requested = error.retry_after if isinstance(error, UpstreamFailed) else None
            return _backoff(state) if requested is None else requested

        limit = stop_after_attempt(self._upstream.attempts)

        def stop(state: RetryCallState) -> bool:
            late = asyncio.get_running_loop().time() + state.upcoming_sleep >= deadline
            return late or limit(state)

        def before_sleep(state: RetryCallState) -> None:
            log.warning(
                "upstream of %s failed (attempt %d), retrying in %.2f s",
                self.model,
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
            raise _Retryable(f"upstream of {self.model}: {type(exc).__name__}") from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            # The text of the exception may contain credentials, from the header or the URL.
            raise UpstreamFailed(f"upstream of {self.model}: {type(exc).__name__}") from None
        if response.is_success:
            return raw
        failure = _Retryable if response.status_code in _RETRIED_STATUS else UpstreamFailed
        raise failure(
            f"upstream of {self.model} returned {response.status_code}{_reason(raw, key)}",
            retry_after=retry_after(response.headers),
        )

    async def _read(self, response: httpx.Response) -> bytes:
        limit = self._upstream.max_response_bytes
        received = bytearray()
        async for part in response.aiter_bytes():
            received += part
            if len(received) > limit:
                raise UpstreamFailed(f"upstream of {self.model} sent more than {limit} bytes")
        return bytes(received)


def _reason(raw: bytes, key: str | None) -> str:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return ""
    if not isinstance(body, dict):
        return ""
    # OpenAI-compatible servers use "error", Cohere "message", Jina "detail".
    error = body.get("error") or body.get("message") or body.get("detail")
    if isinstance(error, list):
        return _invalid_fields(error)
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str):
        return ""
    return ": " + (text.replace(key, "***") if key else text)[:_LONGEST_REASON]


def _invalid_fields(problems: list[Any]) -> str:
    """Name the fields in the errors of a FastAPI server, without the values that it repeats."""
    places = [each.get("loc") for each in problems if isinstance(each, dict)]
    names = [".".join(map(str, place)) for place in places if isinstance(place, list)]
    return f": {', '.join(names)}"[:_LONGEST_REASON] if names else ""
