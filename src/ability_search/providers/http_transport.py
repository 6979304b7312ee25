"""The transport to a model server over HTTP, which is loaded only where it is used."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any

import httpx
from pydantic import SecretStr

from ability_search.providers.provider_errors import (
    UNREACHED,
    WRONG_ADDRESS,
    Objection,
    Refusal,
    refusal_of_status,
    refusal_of_text,
    words_of,
)
from ability_search.providers.transports import Service, Transport, failure_in, unsent
from kadi_client.addresses import route_address
from kadi_client.backoff import retry_after
from kadi_client.context import headers

_EVENTS = "text/event-stream"
_DONE = "[DONE]"
_BROKEN_OFF = (
    *(httpx.ReadError, httpx.ReadTimeout, httpx.WriteError, httpx.WriteTimeout),
    *(httpx.RemoteProtocolError, httpx.DecodingError),
)
"""Errors of a connection after the server had accepted it, or of what it sent."""


def http_client(*, propagate: bool) -> httpx.AsyncClient:
    """Return a client, whose requests with ``propagate`` have the tracing headers of the call."""

    async def follow(request: httpx.Request) -> None:
        request.headers.update(headers())

    return httpx.AsyncClient(event_hooks={"request": [follow] if propagate else []})


class OverHttp(Transport):
    """A transport that posts JSON to an HTTP API.

    Args:
        service: The service.
        client: The HTTP client; the caller closes it.
        url: Base URL of the server, see :func:`route_address`.
        api_key: Sent as a bearer token.
    """

    def __init__(
        self, service: Service, client: httpx.AsyncClient, url: str, *, api_key: SecretStr | None
    ) -> None:
        self._service = service
        self._client = client
        self._address = route_address(url, service.route)
        self._api_key = api_key
        token = f"Bearer {api_key.get_secret_value()}" if api_key else ""
        self._headers = {"Authorization": token} if token else {}
        self._left_out: set[str] = set()
        """Optional fields that the server refused."""

    async def __call__(self, request: Mapping[str, Any], *, timeout: float) -> Any:
        """Send a request, see :class:`.transports.Transport`."""
        service = self._service
        fields = {name: value for name, value in request.items() if name not in self._left_out}
        try:
            posted = self._client.build_request(
                "POST", self._address, json=fields, headers=self._headers, timeout=timeout
            )
            answer = await self._client.send(posted, stream=True)
            if answer.is_success and answer.headers.get("content-type", "").startswith(_EVENTS):
                return _chunks(service, answer)
            async with aclosing(answer):
                await answer.aread()
        except UnicodeEncodeError as exc:
            refused = Objection("texts", service.api, said=unsent(exc))
            raise service.failure(refused, request) from exc
        except httpx.HTTPError as exc:
            reason: Refusal = "lost" if isinstance(exc, _BROKEN_OFF) else "passing"
            lost = self._objection(reason, None, f"{type(exc).__name__}: {exc}", request)
            problem = f"{lost.who} did not answer: {lost.said}"
            raise service.kind(reason)(problem, hint=UNREACHED) from exc
        if answer.is_success:
            return self._result(answer, request)
        optional = (name for name in service.optional if name in fields)
        if refused_fields := refused_among(optional, fields, answer):
            self._left_out.update(refused_fields)
            return await self(request, timeout=timeout)
        refusal = refusal_of_status(answer.status_code, answer.text)
        error = service.failure(
            self._objection(refusal, answer.status_code, answer.text, request), request
        )
        if error.retryable:
            error.retry_after = retry_after(answer.headers)
        if error.retry_after:
            error.hint = f"{service.api} asks to wait {error.retry_after:.0f} s."
        raise error

    def _result(self, answer: httpx.Response, request: Mapping[str, Any]) -> Any:
        """Return the JSON of a successful response."""
        service = self._service
        try:
            result = answer.json()
        except ValueError as exc:
            failed = self._objection("failed", answer.status_code, answer.text, request)
            problem = failed.quoted(f"{failed.who} did not return JSON")
            raise service.kind("lost")(problem, hint=WRONG_ADDRESS) from exc
        if text := failure_in(service, result):
            refused = self._objection(refusal_of_text(text), answer.status_code, text, request)
            raise service.failure(refused, request)
        return result

    def _objection(
        self, refusal: Refusal, status: int | None, text: str, request: Mapping[str, Any]
    ) -> Objection:
        said = words_of(text, request, self._api_key)
        return Objection(refusal, self._service.api, status, said=said, url=self._address)


async def _chunks(service: Service, answer: httpx.Response) -> AsyncGenerator[Any]:
    """Yield the JSON of server-sent events up to ``[DONE]``; iterate it, so that it is closed.

    Raises:
        SearchError: of the service, if the stream breaks off, or an event is an error.
    """
    try:
        async for line in answer.aiter_lines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data == _DONE:
                return
            if data:
                yield json.loads(data)
    except httpx.HTTPError as exc:
        problem = f"{service.api} broke off its answer: {type(exc).__name__}"
        raise service.unavailable(problem) from exc
    except ValueError as exc:
        raise service.unavailable(f"{service.api} did not return JSON") from exc
    finally:
        await answer.aclose()
    raise service.unavailable(f"{service.api} broke off its answer")


def refused_among(
    optional: Iterable[str], request: Mapping[str, Any], answer: httpx.Response
) -> list[str]:
    """Return the fields of a request that an error response names, by name or by value."""
    if answer.status_code not in (400, 422):
        return []
    text = answer.text
    return [name for name in optional if name in text or f"`{request[name]}`" in text]
