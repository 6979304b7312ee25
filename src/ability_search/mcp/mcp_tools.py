"""The tools over MCP: listed from the table of tools, called over the network."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from ability_search.client.tool_client import progress_of
from ability_search.edges.tool_calls import Caller, Unavailable, report_of
from ability_search.tools.table import BY_NAME, TOOLS, ToolRow
from kadi_client import KadiError, ToolError
from kadi_client.messages import decode

Context = ServerRequestContext[Any, Any]


class Tools:
    """The handlers of ``tools/list`` and ``tools/call``."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._listed = ListToolsResult(tools=[_described(row) for row in TOOLS])

    async def listing(
        self, _ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """List all tools."""
        return self._listed

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        """Call a tool; a failure is returned as an error result with the hint.

        Raises:
            MCPError: if the tool does not exist.
        """
        row = BY_NAME.get(params.name)
        if row is None:
            names = ", ".join(BY_NAME)
            raise MCPError(INVALID_PARAMS, f"unknown tool {params.name!r}; tools: {names}")
        try:
            answer = await self._answer(ctx, row, dict(params.arguments or {}))
        except Exception as exc:  # noqa: BLE001 - the boundary, see report_of()
            text = failure_text(report_of(exc, row.name))
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        return CallToolResult(
            content=[TextContent(text=bytes(answer).decode())], structured_content=decode(answer)
        )

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


def failure_text(report: Mapping[str, Any]) -> str:
    """Return the text of a failure for a model: the error, the hint, whether to retry."""
    lines = [f"{report.get('code')}: {report.get('error')}"]
    if report.get("hint"):
        lines.append(f"Hint: {report['hint']}")
    if report.get("retryable"):
        after = report.get("retryAfterMs")
        lines.append(f"Retry after {after} ms." if after else "A retry may succeed.")
    return "\n".join(lines)


def _described(row: ToolRow) -> Tool:
    return Tool(
        name=row.name,
        title=row.title,
        description=row.description,
        input_schema=dict(row.input_schema),
        output_schema=dict(row.output_schema),
        annotations=ToolAnnotations(
            title=row.title,
            read_only_hint=row.read_only,
            destructive_hint=row.destructive,
            idempotent_hint=row.idempotent,
            open_world_hint=False,
        ),
    )


def _wants_progress(ctx: Context) -> bool:
    meta = (ctx.params or {}).get("_meta")
    return isinstance(meta, Mapping) and "progressToken" in meta
