"""The MCP server, over standard input and output, or over HTTP in an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, cast

import msgspec
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

from ability_search import __version__
from ability_search.extensions.answers.answerer import Answerer
from ability_search.extensions.cli.tool_calls import Caller
from ability_search.extensions.gateway.settings import McpProfile
from ability_search.extensions.mcp.mcp_tools import Tools
from ability_search.extensions.mcp.resources import Prompts, Resources
from ability_search.tools.tool_row import ToolRow
from kadi_client import ProtocolError
from kadi_client.framing import MessageReader
from kadi_client.pipes import PipeReader

log = logging.getLogger(__name__)

_CANCELLED = "notifications/cancelled"
_INSTRUCTIONS = """\
ability-search indexes and searches texts. To answer from indexed texts, call search-query; \
search-collections lists the collections. Index texts with search-index and files with \
search-index-file. Cite the sources of hits in your answers."""
_LEAN_INSTRUCTIONS = """ \
Hits are references with a snippet: search-read returns the text of a hit's uri, and search-query \
returns texts if maxResultTokens or expand is set."""


def new_server(
    caller: Caller, answerer: Answerer, profile: McpProfile, rows: Sequence[ToolRow]
) -> Server[Any]:
    """Return a server that calls the tools through ``caller``; it keeps no state.

    It lists the tools of ``rows``.
    """
    resources = Resources(caller)
    tools = Tools(caller, answerer, resources, profile, rows)
    prompts = Prompts(resources)
    return Server(
        "ability-search",
        version=__version__,
        title="ability-search",
        instructions=_INSTRUCTIONS + (_LEAN_INSTRUCTIONS if profile == "lean" else ""),
        on_list_tools=tools.listing,
        on_call_tool=tools.call,
        on_list_resources=resources.listing,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_list_prompts=prompts.listing,
        on_get_prompt=prompts.get,
    )


async def serve_stdio(
    caller: Caller,
    answerer: Answerer,
    *,
    max_bytes: int,
    profile: McpProfile,
    rows: Sequence[ToolRow],
) -> None:
    """Serve until standard input ends and what came in is answered; cancel it to stop earlier.

    While it runs, all other output to standard output is redirected to standard error.

    Args:
        caller: Calls the tools.
        answerer: Answers questions.
        max_bytes: Maximum size of a message in bytes; longer ones are refused unread.
        profile: How the tools are listed.
        rows: The tools that are listed.
    """
    server = new_server(caller, answerer, profile, rows)
    reader = PipeReader(sys.stdin.fileno())
    # The SDK's own reader waits for a line in a thread that cannot be cancelled.
    lines = _Lines(reader, max_bytes)
    try:
        async with stdio_server(stdin=cast(Any, lines)) as (reading, writing):
            lines.answers = answers = _Answers(writing)
            await server.run(reading, answers, server.create_initialization_options())
    finally:
        reader.stop()


class _Envelope(msgspec.Struct):
    """The members of a message; decoding it checks the syntax of the whole."""

    jsonrpc: Literal["2.0"]
    id: int | str | None = None
    method: str | None = None
    params: dict[str, msgspec.Raw] | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Answers:
    """The stream of the answers, which knows what is not answered yet."""

    def __init__(self, stream: WriteStream[SessionMessage]) -> None:
        self._stream = stream
        self._open: set[int | str] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def expect(self, request: int | str) -> None:
        """Expect the answer to a request."""
        self._open.add(request)
        self._none_open.clear()

    def forget(self, request: int | str | None) -> None:
        """Expect no answer to a request, or no more."""
        self._open.discard(cast(int | str, request))
        if not self._open:
            self._none_open.set()

    async def complete(self) -> None:
        """Wait until all requests are answered."""
        await self._none_open.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        await self._stream.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self.forget(item.message.id)

    async def aclose(self) -> None:
        """Close the stream."""
        self._open.clear()
        self._none_open.set()
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Lines:
    """The messages on standard input as text; one that cannot be read is answered with an error.

    The input of the server ends when all requests are answered. ``answers`` is the stream of the
    answers.
    """

    answers: _Answers

    def __init__(self, reader: PipeReader, max_bytes: int) -> None:
        self._reader = reader
        self._messages = MessageReader(max_bytes)

    async def __aiter__(self) -> AsyncIterator[str]:
        while piece := await self._reader.next():
            for item in self._messages.feed(piece):
                if isinstance(item, ProtocolError):
                    await self._refuse(item)
                    continue
                try:
                    message = _envelope(item.body)
                except ProtocolError as exc:
                    await self._refuse(exc)
                    continue
                if message.method == _CANCELLED:
                    self.answers.forget(_cancelled_request(message))
                elif message.method is not None and message.id is not None:
                    self.answers.expect(message.id)
                yield item.body.decode("utf-8", "replace")
        await self.answers.complete()

    async def _refuse(self, error: ProtocolError) -> None:
        log.warning("message refused: %s", error)
        data = ErrorData(code=error.code, message=str(error))
        await self.answers.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=data)))


def _cancelled_request(message: _Envelope) -> int | str | None:
    """Return the id of the request that a notification cancels."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode((message.params or {}).get("requestId", b""), type=int | str)
    return None


def _envelope(body: bytes) -> _Envelope:
    """Return the members of a message.

    Raises:
        ProtocolError: if it is none.
    """
    try:
        # The whole body first: of a wrong type that is cut off, only the type would be an error.
        msgspec.json.decode(body, type=msgspec.Raw)
        found = msgspec.json.decode(body, type=_Envelope)
    except msgspec.ValidationError as exc:
        raise ProtocolError(f"not a JSON-RPC 2.0 message: {exc}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ProtocolError(f"not valid JSON: {exc}", code=PARSE_ERROR) from exc
    if found.method is None and not found.result and not found.error:
        raise ProtocolError("not a JSON-RPC 2.0 message: no method, result or error")
    return found
