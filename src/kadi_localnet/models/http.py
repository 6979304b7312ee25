"""The model manager over HTTP, for clients of OpenAI's API and of rerank APIs."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from opentelemetry.trace import SpanKind
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from kadi_client.context import from_headers, handling, incident
from kadi_client.messages import has_more_values
from kadi_client.provider import FAILED, OK, noted
from kadi_client.tracing import TRACEPARENT, span
from kadi_localnet.models.errors import (
    DeadlinePassed,
    InvalidRequest,
    ModelsError,
    RequestTooLarge,
    Unauthorized,
)
from kadi_localnet.models.requests import MAX_VALUES

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
Answer = Callable[..., Awaitable[dict[str, Any]]]
"""Returns the answer to a request that was read from JSON, within ``timeout`` seconds."""

_CLIENT_CLOSED_REQUEST = 499


def application(
    answers: Mapping[str, Answer],
    names: Sequence[str],
    *,
    token: str | None,
    max_bytes: int,
    timeout: float,
) -> Starlette:
    """Return the ASGI application; disconnecting cancels a request.

    Args:
        answers: What answers posts, by path.
        names: The models to list.
        token: Token that all routes but ``/health`` require; ``None`` for none.
        max_bytes: Maximum size of the body of a request.
        timeout: Seconds for reading a request, and again for answering it.
    """

    def posted(path: str, answer: Answer) -> Route:
        async def endpoint(request: Request) -> Response:
            began, outcome = time.perf_counter(), FAILED
            with span(path, SpanKind.SERVER, parent=request.headers.get(TRACEPARENT)):
                try:
                    raw = await _read_json(request, max_bytes, timeout)
                    work = answer(raw, timeout=timeout)
                    response = _json(await _while_connected(request, work))
                    outcome = OK
                    return response
                finally:
                    noted(path, outcome, time.perf_counter() - began)

        return Route(path, _guarded(endpoint, token), methods=["POST"])

    async def listing(_: Request) -> Response:
        rows = [
            {"id": name, "object": "model", "created": 0, "owned_by": "ability-search"}
            for name in names
        ]
        return _json({"object": "list", "data": rows})

    async def health(_: Request) -> Response:
        return _json({"status": "ok"})

    return Starlette(
        routes=[
            *(posted(path, answer) for path, answer in answers.items()),
            Route("/v1/models", _guarded(listing, token), methods=["GET"]),
            Route("/health", _guarded(health, None), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _routing_error},
    )


def _guarded(endpoint: Endpoint, token: str | None) -> Endpoint:
    expected = f"Bearer {token}".encode()

    async def call(request: Request) -> Response:
        with handling(from_headers(request.headers)):
            try:
                given = request.headers.get("authorization", "").encode()
                if token and not hmac.compare_digest(given, expected):
                    raise Unauthorized
                return await endpoint(request)
            except ModelsError as exc:
                return _error(exc)
            except ClientDisconnect:
                return Response(status_code=_CLIENT_CLOSED_REQUEST)
            except Exception:
                name = incident()
                log.exception("incident %s", name)
                return _error(ModelsError(f"internal error, incident {name}"))

    return call


async def _while_connected(request: Request, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Return the result of ``work``; cancel it if the client disconnects.

    Raises:
        ClientDisconnect: if the client disconnected.
    """
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read_json(request: Request, max_bytes: int, timeout: float) -> Any:
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise RequestTooLarge(f"body: at most {max_bytes} bytes are allowed")
    except TimeoutError:
        raise DeadlinePassed(timeout) from None
    if has_more_values(body, MAX_VALUES):
        raise RequestTooLarge(f"body: more than {MAX_VALUES} objects and arrays")
    try:
        # Not msgspec: it rejects unpaired surrogates, which truncated texts may contain.
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest("body: not valid JSON") from exc


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        media_type="application/json",
        headers=headers,
    )


def _error(error: ModelsError) -> Response:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return _json(error.body(), status=error.status, headers=headers)


async def _routing_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    error = {"message": exc.detail, "type": InvalidRequest.kind, "param": None}
    body = {"error": {**error, "code": "unknown_url"}}
    return _json(body, status=exc.status_code, headers=dict(exc.headers or {}))
