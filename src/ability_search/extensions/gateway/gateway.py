"""The ASGI application of the gateway: its routes behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from mimetypes import add_type
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ability_search.errors import NotFound, SearchError
from ability_search.extensions.cli.tool_calls import report_of
from ability_search.extensions.gateway.middleware import ASSETS, PAGE, Guard
from ability_search.extensions.gateway.openapi import Operation
from ability_search.extensions.gateway.operations import Handlers, operations
from ability_search.extensions.gateway.problems import CLIENT_CLOSED_REQUEST, GATEWAY, problem
from ability_search.extensions.gateway.request_bodies import checked_query
from ability_search.tools.table import all_tools
from kadi_client.context import REQUEST_ID

_EXPOSED = (REQUEST_ID, "Retry-After", "Mcp-Session-Id", "Mcp-Protocol-Version")
_MAX_AGE = 600

_POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'"),
    *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
)
_CONSOLE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_UNROUTED: Mapping[int, tuple[str, str]] = {
    HTTPStatus.NOT_FOUND: ("not_found", "no such path"),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method_not_allowed", "the path does not support this method"),
}

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedRoutes:
    """The routes of an extension while they are open."""

    operations: Sequence[Operation] = ()
    state: Any = None
    """First argument of the handlers of its operations."""
    further: Sequence[Route] = ()
    """Routes that OpenAPI does not describe."""
    running: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """A context that is open while they are served."""


def application(handlers: Handlers, *, host: str, added: Sequence[AddedRoutes]) -> ASGIApp:
    """Return the application: all routes behind one guard.

    Args:
        handlers: The handlers of the operations.
        host: Address to listen on.
        added: Routes of extensions.
    """
    settings = handlers.settings
    states = {item.id: each.state for each in added for item in each.operations}
    described = operations()
    public = frozenset(item.path for item in described if item.public)
    app = Starlette(
        routes=[
            *(
                Route(
                    each.path, _endpoint(each, states.get(each.id, handlers)), methods=[each.method]
                )
                for each in described
            ),
            *(route for each in added for route in each.further),
            Route("/tools/{name}", _answering(_unknown_tool), methods=["POST"]),
            *_console(),
        ],
        exception_handlers={HTTPException: _unrouted, SearchError: _failed},
    )
    guarded = Guard(app, settings, host=host, open_paths=public, meter=handlers.meter)
    if not settings.origins:
        return guarded
    return CORSMiddleware(
        guarded,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=_EXPOSED,
        max_age=_MAX_AGE,
    )


class _ConsoleFiles(StaticFiles):
    """The page of the console and its assets, with headers that keep other sites out."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return a file, or 304 if the client already has it."""
        response = super().file_response(*args, **options)
        response.headers.update(_CONSOLE_HEADERS)
        return response


def _console() -> tuple[BaseRoute, ...]:
    add_type("text/javascript", ".js")  # Windows may know it as plain text
    directory = Path(__file__).with_name("page")
    page, assets = (_ConsoleFiles(directory=directory, html=html) for html in (True, False))
    return Route(PAGE, page), Mount(ASSETS, assets)


def _endpoint(operation: Operation, state: Any) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if operation.parameters is not None:
            checked_query(request.query_params, *operation.query)
        return await operation.handler(state, request)

    return _answering(endpoint)


async def _unknown_tool(request: Request) -> Response:
    raise NotFound(
        "tool", request.path_params["name"], nearest=tuple(row.name for row in all_tools())
    )


def _answering(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint so that exceptions become problem responses."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
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
