"""Calls a tool under a call id of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kadi_client import Connection, RemoteError
from kadi_client.context import calling

log = logging.getLogger(__name__)


async def call_tool(
    connection: Connection, tool: str, tool_input: Mapping[str, Any], *, timeout: float
) -> dict[str, Any]:
    """Call a tool and return its answer, which must be an object.

    Raises:
        ToolError: if the tool reports a failure.
        KadiError: if the tool does not answer, or the answer is not an object.
    """
    with calling(tool_input):
        log.debug("calling %s", tool)
        answer = await connection.invoke(tool, dict(tool_input), timeout=timeout)
    if not isinstance(answer, dict):
        raise RemoteError(f"{tool} returned an answer that is not an object")
    return answer
