"""The MCP server, over standard input and output, or over HTTP in an ASGI application."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from ability_search import __version__
from ability_search.edges.tool_calls import Caller, Unavailable
from ability_search.errors import first_failure
from ability_search.mcp.mcp_tools import Tools
from ability_search.mcp.prompts import Prompts
from ability_search.mcp.resources import Resources
from kadi_client import ProtocolError
from kadi_client.framing import MessageReader
from kadi_client.pipes import PipeReader

log = logging.getLogger(__name__)

_IDLE_SECONDS = 30 * 60.0
_MAX_SESSIONS = 1000
_INSTRUCTIONS = """\
ability-search indexes and searches texts. To answer from indexed texts, call search-query; \
search-collections lists the collections. Index texts with search-index and files with \
search-index-file. Cite the sources of hits in your answers."""


def new_server(caller: Caller) -> Server[Any]:
    """Return a server that calls the tools through ``caller``; it keeps no state."""
    tools, resources = Tools(caller), Resources(caller)
    prompts = Prompts(resources)
    return Server(
        "ability-search",
        version=__version__,
        title="ability-search",
        instructions=_INSTRUCTIONS,
        on_list_tools=tools.listing,
        on_call_tool=tools.call,
        on_list_resources=resources.listing,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_list_prompts=prompts.listing,
        on_get_prompt=prompts.get,
        on_completion=resources.complete,
    )


async def serve_stdio(caller: Caller, *, max_bytes: int) -> None:
    """Serve until standard input ends; cancel it to stop earlier.

    While it runs, all other output to standard output is redirected to standard error.

    Args:
        caller: Calls the tools.
        max_bytes: Maximum size of a message in bytes; longer ones are refused unread.
    """
    server = new_server(caller)
    reader = PipeReader(sys.stdin.fileno())
    # The SDK's own reader waits for a line in a thread that cannot be cancelled.
    lines: Any = _lines(reader, max_bytes)
    try:
        async with stdio_server(stdin=lines) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        reader.stop()


async def _lines(reader: PipeReader, max_bytes: int) -> AsyncIterator[str]:
    messages = MessageReader(max_bytes)
    while piece := await reader.next():
        for item in messages.feed(piece):
            if isinstance(item, ProtocolError):
                log.warning("message refused: %s", item)
            else:
                yield item.body.decode("utf-8", "replace")


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
