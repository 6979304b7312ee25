"""/mcp of the gateway: the tools over MCP, if that extra is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ability_search.config.schema import Settings
from ability_search.errors import first_failure
from ability_search.extensions.answers.answerer import Answerer, open_answerer
from ability_search.extensions.cli.extras import EXTRAS, install_command, missing_modules
from ability_search.extensions.cli.tool_calls import Caller, Unavailable
from ability_search.extensions.gateway.gateway import AddedRoutes
from ability_search.extensions.gateway.problems import NotInstalled
from ability_search.extensions.gateway.settings import Gateway, McpProfile
from ability_search.tools.table import listed_tools
from ability_search.tools.tool_row import ToolRow

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_IDLE_SECONDS = 30 * 60.0
_MAX_SESSIONS = 1000
OPERATIONS = ()
"""OpenAPI does not describe it."""


@asynccontextmanager
async def open_routes(settings: Settings, caller: Caller) -> AsyncIterator[AddedRoutes]:
    """Yield the route; without the extra it answers with the command that installs it.

    Raises:
        ConfigurationError: if the language model is behind an API whose address is missing, or the
            setting ``offer`` names what no extension has.
    """
    if missing_modules(EXTRAS["mcp"]):
        yield AddedRoutes(further=[_route(_not_installed)])
        return
    own, search = settings.of(Gateway), partial(caller.read, "search-query")
    async with open_answerer(settings, search, caller.live.connection) as answerer:
        endpoint = McpEndpoint(
            caller,
            answerer,
            max_bytes=own.request_bytes,
            profile=own.mcp_profile,
            rows=listed_tools(settings.loading.offer),
        )
        yield AddedRoutes(further=[_route(endpoint)], running=endpoint.running)


def _route(endpoint: Any) -> Route:
    return Route("/mcp", endpoint, methods=["GET", "POST", "DELETE"])


async def _not_installed(_: Request) -> Any:
    raise NotInstalled("the extra 'mcp' is not installed", hint=f"Run: {install_command('mcp')}")


class McpEndpoint:
    """An ASGI application for one path; it serves while :meth:`running`.

    Clients of the 2026 protocol have no session. Older clients have one, which lets them cancel
    calls; it ends after half an hour without a request. A client whose session is unknown starts a
    new one. The protocol is loaded at the first request: it takes 17 MB, and half a second.

    Args:
        caller: Calls the tools.
        answerer: Answers questions.
        max_bytes: Maximum size of a request in bytes.
        profile: How the tools are listed.
        rows: The tools that are listed.
    """

    def __init__(
        self,
        caller: Caller,
        answerer: Answerer,
        *,
        max_bytes: int,
        profile: McpProfile,
        rows: Sequence[ToolRow],
    ) -> None:
        self._load = partial(_manager, caller, answerer, max_bytes, profile, rows)
        self._opening = asyncio.Lock()
        self._opened = asyncio.Event()
        self._manager: StreamableHTTPSessionManager | None = None
        self._group: asyncio.TaskGroup | None = None
        self._serving: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve during the block; end every session afterwards."""
        try:
            async with asyncio.TaskGroup() as self._group:
                try:
                    yield
                finally:
                    self._group = None
                    if self._serving is not None:
                        self._serving.cancel()
        except BaseExceptionGroup as failures:  # exceptions of the block arrive in a group
            raise first_failure(failures) from failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        async with self._opening:
            if self._manager is None:
                self._manager = await asyncio.to_thread(self._load)
            if self._group is None:
                raise Unavailable("the server is starting or stopping", retry_after=1.0)
            if self._serving is None:
                self._serving = self._group.create_task(self._serve(self._manager))
        await self._opened.wait()
        await self._manager.handle_request(scope, receive, send)

    async def _serve(self, manager: StreamableHTTPSessionManager) -> None:
        try:
            async with manager.run():
                self._opened.set()
                await asyncio.Event().wait()
        finally:
            self._opened.set()


def _manager(
    caller: Caller,
    answerer: Answerer,
    max_bytes: int,
    profile: McpProfile,
    rows: Sequence[ToolRow],
) -> StreamableHTTPSessionManager:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ability_search.extensions.mcp.mcp_server import new_server

    # The mounting application checks hosts and origins.
    return StreamableHTTPSessionManager(
        new_server(caller, answerer, profile, rows),
        session_idle_timeout=_IDLE_SECONDS,
        max_request_body_size=max_bytes,
        max_sessions=_MAX_SESSIONS,
    )
