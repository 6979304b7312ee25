"""The ASGI application of the gateway: its routes behind the guard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from ability_search.config.schema_edges import Gateway
from ability_search.edges.component_health import look
from ability_search.edges.live_connection import Unavailable
from ability_search.edges.offered_tools import offers_of
from ability_search.edges.tool_calls import Caller, report_of
from ability_search.errors import InvalidInput, NotFound, SearchError
from ability_search.http import console, openapi
from ability_search.http import gateway_metrics as metrics
from ability_search.http.event_stream import Streams
from ability_search.http.guard import Guard
from ability_search.http.problems import CLIENT_CLOSED_REQUEST, GATEWAY, problem
from ability_search.http.request_bodies import checked_query, fields_of, read_json
from ability_search.http.request_context import Followed
from ability_search.http.shortcuts import INGEST, SEARCH, ingested, searched
from ability_search.tools.table import BY_NAME
from kadi_client import KadiError
from kadi_client.context import REQUEST_ID

JSON = "application/json"
_LOOK_SECONDS = 5.0
_EXPOSED = (REQUEST_ID, "Retry-After", "Mcp-Session-Id", "Mcp-Protocol-Version")
_MAX_AGE = 600

_NUMBER = re.compile(r"[0-9]{1,9}")
_UNROUTED: Mapping[int, tuple[str, str]] = {
    HTTPStatus.NOT_FOUND: ("not_found", "no such path"),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method_not_allowed", "the path does not support this method"),
}

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Routes:
    """The handlers of the routes and what they use.

    ``models`` says whether a model manager is expected on the network.
    """

    caller: Caller
    settings: Gateway
    metrics: metrics.Metrics
    models: bool = True

    def table(self, streams: Streams) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/tools/{name}", _answering(self.tool), methods=["POST"]),
            Route("/ingest", _answering(self.ingest), methods=["POST"]),
            Route("/search", _answering(self.search), methods=["POST"]),
            Route("/collections", _answering(self.collections), methods=["GET"]),
            Route("/collections/{name}", _answering(self.collection), methods=["GET"]),
            Route("/events", streams, methods=["GET"]),
            Route("/health", _answering(self.health), methods=["GET"]),
            Route("/ready", _answering(self.ready), methods=["GET"]),
            Route("/network", _answering(self.network), methods=["GET"]),
            Route("/metrics", _answering(self.numbers), methods=["GET"]),
            Route("/openapi.json", _answering(self.openapi), methods=["GET"]),
        ]

    async def tool(self, request: Request) -> Response:
        """POST /tools/{name}."""
        name = request.path_params["name"]
        if name not in BY_NAME:
            raise NotFound("tool", name, nearest=tuple(BY_NAME))
        return await self._call(request, name, fields_of(await self._body(request)))

    async def ingest(self, request: Request) -> Response:
        """POST /ingest."""
        fields = fields_of(await self._body(request))
        return await self._call(request, INGEST, ingested(fields))

    async def search(self, request: Request) -> Response:
        """POST /search."""
        fields = fields_of(await self._body(request))
        return await self._call(request, SEARCH, searched(fields))

    async def collections(self, request: Request) -> Response:
        """GET /collections."""
        checked_query(request.query_params)
        return await self._call(request, "search-collections", {})

    async def collection(self, request: Request) -> Response:
        """GET /collections/{name}."""
        query = checked_query(request.query_params, "limit", "cursor")
        wanted: dict[str, Any] = {"collection": request.path_params["name"]}
        if "limit" in query:
            wanted["limit"] = _number("limit", query["limit"])
        if "cursor" in query:
            wanted["cursor"] = query["cursor"]
        return await self._call(request, "search-collection-info", wanted)

    async def health(self, _request: Request) -> Response:
        """GET /health."""
        try:
            connection = await self.caller.line.connection()
            found = await look(connection, timeout=_LOOK_SECONDS)
        except (Unavailable, KadiError):
            parts: dict[str, Any] = {"broker": {"state": "down"}}
        else:
            parts = {"broker": {"state": "up"}}
            for name, part in found.items():
                if name == "models" and not self.models:
                    continue
                state = "up" if part.is_up else "down"
                parts[name] = {"state": state, "providers": part.providers}
                if part.missing:
                    parts[name]["missing"] = part.missing
        down = any(part["state"] == "down" for part in parts.values())
        return _json(
            {"status": "down" if down else "up", "parts": parts},
            status=HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.OK,
        )

    async def ready(self, _request: Request) -> Response:
        """GET /ready."""
        connection = await self.caller.line.connection()
        try:
            worker = (await look(connection, timeout=_LOOK_SECONDS))["worker"]
        except KadiError as exc:
            raise Unavailable("the broker does not answer", retry_after=1.0) from exc
        if not worker.is_up:
            raise Unavailable("no worker is connected", retry_after=1.0)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def network(self, _request: Request) -> Response:
        """GET /network."""
        connection = await self.caller.line.connection()
        try:
            tools = await connection.list_tools(include_providers=True, timeout=_LOOK_SECONDS)
        except KadiError as exc:
            raise Unavailable("the broker does not answer", retry_after=1.0) from exc
        return _json({"tools": offers_of(tools)})

    async def numbers(self, _request: Request) -> Response:
        """GET /metrics."""
        return Response(self.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def openapi(self, _request: Request) -> Response:
        """GET /openapi.json."""
        return _json(openapi.document(secured=self.settings.token is not None))

    async def _body(self, request: Request) -> bytes:
        checked_query(request.query_params)
        return await read_json(request, self.settings.request_bytes)

    async def _call(self, request: Request, tool: str, tool_input: Mapping[str, Any]) -> Response:
        answer = await _while_connected(request, self.caller.call(tool, tool_input))
        return Response(bytes(answer), media_type=JSON)


def application(routes: Routes, streams: Streams, *, host: str, mcp: ASGIApp | Handler) -> ASGIApp:
    """Return the application: all routes behind one guard.

    Args:
        routes: The routes.
        streams: Application that serves /events.
        host: Address to listen on.
        mcp: Application that serves /mcp.
    """
    app = Starlette(
        routes=[
            *routes.table(streams),
            Route("/mcp", mcp, methods=["GET", "POST", "DELETE"]),
            *console.routes(),
        ],
        exception_handlers={HTTPException: _unrouted, SearchError: _failed},
    )
    guarded = Guard(Followed(app), routes.settings, host=host, metrics=routes.metrics)
    if not routes.settings.origins:
        return guarded
    return CORSMiddleware(
        guarded,
        allow_origins=routes.settings.origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=_EXPOSED,
        max_age=_MAX_AGE,
    )


def _answering(handler: Handler) -> Handler:
    """Wrap a handler so that exceptions become problem responses."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception as exc:  # noqa: BLE001 - the boundary, see report_of()
            return await _failed(request, exc)

    return answer


async def _failed(_: Request, exc: Exception) -> Response:
    return problem(report_of(exc, GATEWAY))


async def _unrouted(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    code, text = _UNROUTED.get(exc.status_code, (SearchError.code, exc.detail))
    report = {"code": code, "error": text, "hint": "GET /openapi.json describes every path."}
    return problem(report, headers=exc.headers)


def _number(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(field, "expected a whole number of at most 9 digits")
    return int(text)


def _json(value: Any, *, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of ``work``; disconnecting cancels it. The request body must be read.

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
