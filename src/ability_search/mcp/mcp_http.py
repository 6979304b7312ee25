"""The MCP server over streamable HTTP, to be mounted in an application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from ability_search.edges.live_connection import Unavailable
from ability_search.edges.tool_calls import Caller
from ability_search.errors import first_failure
from ability_search.mcp.mcp_server import new_server

_IDLE_SECONDS = 30 * 60.0
_MAX_SESSIONS = 1000


class McpEndpoint:
    """An ASGI application for one path; it serves while :meth:`running`.

    Clients of the 2026 protocol have no session. Older clients have one, which lets them cancel
    calls; it ends after half an hour without a request. A client whose session is unknown starts a
    new one.

    Args:
        caller: Calls the tools.
        max_bytes: Maximum size of a request in bytes.
    """

    def __init__(self, caller: Caller, *, max_bytes: int) -> None:
        # The mounting application checks hosts and origins.
        self._manager = StreamableHTTPSessionManager(
            new_server(caller),
            session_idle_timeout=_IDLE_SECONDS,
            max_request_body_size=max_bytes,
            max_sessions=_MAX_SESSIONS,
        )
        self._running = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve during the block; end every session afterwards."""
        try:
            async with self._manager.run():
                self._running = True
                try:
                    yield
                finally:
                    self._running = False
        except BaseExceptionGroup as failures:  # exceptions of the block arrive in a group
            raise first_failure(failures) from failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if not self._running:
            raise Unavailable("the server is starting or stopping", retry_after=1.0)
        await self._manager.handle_request(scope, receive, send)
