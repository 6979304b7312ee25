"""Plugin of the tools over MCP."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("mcp", "ability_search.extensions.mcp.mcp_command", 290),)


@hookimpl
def register_routes() -> Sequence[str]:
    return ("ability_search.extensions.mcp.mcp_route",)
