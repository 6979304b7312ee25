"""The tools over MCP: listed from the table of tools, called over the network.

The full profile lists them as they are. The lean one costs a model's context little: short schemas,
hits as references, and one more tool, which reads what a reference names.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import Field

from ability_search.client.tool_client import progress_of
from ability_search.extensions.answers.answerer import Answerer, AskInput
from ability_search.extensions.cli.tool_calls import Caller, Unavailable, report_of
from ability_search.extensions.gateway.settings import McpProfile
from ability_search.extensions.mcp.lean_profile import (
    full_input,
    lean_answer,
    lean_description,
    lean_error,
    lean_question,
    lean_result,
    lean_schema,
)
from ability_search.extensions.mcp.resources import Resources, failure_text
from ability_search.tools.table import all_tools, tool_named
from ability_search.tools.tool_row import ToolRow
from ability_search.wire import Count, Input, NonBlank
from kadi_client import KadiError, ToolError
from kadi_client.messages import decode, encode

Context = ServerRequestContext[Any, Any]

_READ_CHARACTERS = 20_000
"""Maximum length of the text that search-read returns at once."""


class ReadInput(Input):
    """Input of search-read."""

    uri: NonBlank = Field(
        description="uri of a hit; search://collection/NAME/source/SOURCE for the whole text of a"
        " source (percent-encoded); search://tool/NAME for the full schema of a tool."
    )
    offset: Count = Field(0, ge=0, description="Number of characters to skip.")


READ = types.Tool(
    name="search-read",
    title="Read",
    description="Read the text of a hit or of a source, or the full description of a tool.",
    input_schema=ReadInput.model_json_schema(),
    annotations=types.ToolAnnotations(title="Read", read_only_hint=True, open_world_hint=False),
)


ASK = types.Tool(
    name="search-ask",
    title="Ask",
    description="Answer a question from indexed texts, with citations that are checked. Without a"
    " language model it returns the best passages.",
    input_schema=lean_question(AskInput.model_json_schema(by_alias=True)),
    annotations=types.ToolAnnotations(title="Ask", read_only_hint=True, open_world_hint=False),
)


class Tools:
    """The handlers of ``tools/list`` and ``tools/call``."""

    def __init__(
        self, caller: Caller, answerer: Answerer, resources: Resources, profile: McpProfile
    ) -> None:
        self._caller = caller
        self._answerer = answerer
        self._resources = resources
        self._lean = profile == "lean"
        tools = [_described(row, lean=self._lean) for row in all_tools()]
        self._listed = types.ListToolsResult(tools=[*tools, ASK, READ] if self._lean else tools)

    async def listing(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List all tools."""
        return self._listed

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool; a failure is returned as an error result with the hint.

        Raises:
            MCPError: if the tool does not exist.
        """
        row = tool_named(params.name)
        arguments = dict(params.arguments or {})
        try:
            if row is not None:
                return await self._call(ctx, row, arguments)
            if self._lean and params.name == READ.name:
                return types.CallToolResult(content=[await self._read(arguments)])
            if self._lean and params.name == ASK.name:
                return await self._ask(arguments)
        except Exception as exc:  # noqa: BLE001 - the boundary, see report_of()
            report = dict(report_of(exc, params.name))
            if self._lean:
                report["error"] = lean_error(str(report.get("error")), arguments.get("options"))
            text = failure_text(report)
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        names = ", ".join(tool.name for tool in self._listed.tools)
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}; tools: {names}")

    async def _call(
        self, ctx: Context, row: ToolRow, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        if self._lean:
            arguments = full_input(row, arguments)
        answer = bytes(await self._answer(ctx, row, arguments))
        if self._lean:
            answer = encode(lean_result(arguments, decode(answer)))
        return _answered(answer)

    async def _read(self, arguments: dict[str, Any]) -> types.TextContent:
        value = ReadInput.model_validate(arguments)
        text = (await self._resources.content(value.uri)).text
        end = value.offset + _READ_CHARACTERS
        more = f"\n\n[{len(text) - end} characters follow: offset {end}]" if end < len(text) else ""
        return types.TextContent(text=text[value.offset : end] + more)

    async def _ask(self, arguments: dict[str, Any]) -> types.CallToolResult:
        asked = AskInput.model_validate(arguments)
        answer = await self._answerer.answer(asked)
        result = lean_answer(
            asked.collection, answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        return _answered(encode(result))

    async def _answer(self, ctx: Context, row: ToolRow, arguments: dict[str, Any]) -> Any:
        if not (row.reports_progress and _wants_progress(ctx)):
            return await self._caller.call(row.name, arguments)
        job = arguments.setdefault("jobId", secrets.token_hex(8))
        async with self._reporting(ctx, str(job)):
            return await self._caller.call(row.name, arguments)

    @asynccontextmanager
    async def _reporting(self, ctx: Context, job: str) -> AsyncIterator[None]:
        """Forward the progress of a job to the client during the block."""
        reported = -1

        async def report(done: int, total: int, stage: str) -> None:
            nonlocal reported
            if done > reported:  # MCP requires that progress increases
                reported = done
                await ctx.session.report_progress(done, total, stage)

        connection = await self._caller.live.connection()
        try:
            async with progress_of(connection, job, report):
                yield
        except ToolError:
            raise
        except KadiError as exc:
            raise Unavailable("the broker does not answer", retry_after=1.0) from exc


def _described(row: ToolRow, *, lean: bool) -> types.Tool:
    return types.Tool(
        name=row.name,
        title=row.title,
        description=lean_description(row) if lean else row.description,
        input_schema=dict(lean_schema(row) if lean else row.input_schema),
        output_schema=None if lean else dict(row.output_schema),
        annotations=types.ToolAnnotations(
            title=row.title,
            read_only_hint=row.read_only,
            destructive_hint=row.destructive,
            idempotent_hint=row.idempotent,
            open_world_hint=False,
        ),
    )


def _answered(answer: bytes) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=answer.decode())], structured_content=decode(answer)
    )


def _wants_progress(ctx: Context) -> bool:
    meta = (ctx.params or {}).get("_meta")
    return isinstance(meta, Mapping) and "progressToken" in meta
