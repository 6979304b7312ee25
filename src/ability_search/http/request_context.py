"""Request ids and tracing: each response carries an id, and the caller's trace is continued."""

from __future__ import annotations

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kadi_client.context import REQUEST_ID, from_headers, handling
from kadi_client.tracing import fail, span

_LONGEST_PATH = 256
_FAILED = 500


class Followed:
    """Middleware that takes the request id from its header, or creates one.

    It records a span for requests that call tools, but not for probes, streams and the console.

    Args:
        app: The wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with handling(from_headers(Headers(scope=scope))) as context:
            status = 0

            async def named(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    MutableHeaders(scope=message)[REQUEST_ID] = context.call
                await send(message)

            if not _calls_tools(scope):
                await self._app(scope, receive, named)
                return
            method, path = scope["method"], scope["path"][:_LONGEST_PATH]
            notes = {"http.request.method": method, "url.path": path}
            with span(method, SpanKind.SERVER, notes, parent=context.traceparent) as answered:
                await self._app(scope, receive, named)
                answered.set_attribute("http.response.status_code", status)
                if status >= _FAILED:
                    fail(answered, str(status))


def _calls_tools(scope: Scope) -> bool:
    method, path = scope["method"], str(scope["path"])
    return method == "POST" or (method == "GET" and path.startswith("/collections"))
