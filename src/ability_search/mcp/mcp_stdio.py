"""The MCP server over standard input and output."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

from mcp.server.stdio import stdio_server

from ability_search.edges.tool_calls import Caller
from ability_search.mcp.mcp_server import new_server
from kadi_client import ProtocolError
from kadi_client.framing import MessageReader
from kadi_client.pipes import PipeReader

log = logging.getLogger(__name__)


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
