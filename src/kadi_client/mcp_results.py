"""Tool results in the form that MCP clients expect (CallToolResult, MCP 2025-06-18).

A broker with an MCP interface forwards a provider's answer unchanged and marks such calls with
``_meta.callerProtocol``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kadi_client.messages import Raw, decode, encode

PROTOCOL = "mcp"

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri",),
}
"""String members that a content block of each type must have."""


def call_result(result: Any, *, structured: bool) -> Mapping[str, Any]:
    """Return a tool's result as a CallToolResult; one in this form already is unchanged.

    Args:
        result: A JSON value, or raw JSON.
        structured: Also return an object as ``structuredContent``, as MCP requires of tools with
            an output schema.
    """
    value = decode(result) if isinstance(result, Raw) else result
    if isinstance(value, Mapping) and _is_call_result(value):
        return value
    failed = isinstance(value, Mapping) and value.get("success") is False
    shaped: dict[str, Any] = {
        "content": [{"type": "text", "text": encode(result).decode()}],
        "isError": failed,
    }
    if structured and isinstance(value, Mapping) and not failed:
        shaped["structuredContent"] = result
    return shaped


def call_error(message: str) -> Mapping[str, Any]:
    """Return a CallToolResult for a failed call."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _is_call_result(value: Mapping[str, Any]) -> bool:
    content = value.get("content")
    if isinstance(content, list) and content and all(map(_is_block, content)):
        return True
    return isinstance(value.get("structuredContent"), Mapping)


def _is_block(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    if kind == "resource":
        return isinstance(block.get("resource"), Mapping)
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    return members is not None and all(isinstance(block.get(name), str) for name in members)
