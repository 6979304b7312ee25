"""One call of a tool, under an id of its own."""

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
    """Call a tool that answers with an object, and return that.

    Raises:
        ToolError: if the tool answered that it failed.
        KadiError: if there is no answer, or if it is not an object.
    """
    with calling(tool_input):
        log.debug("%s is called", tool)
        answer = await connection.invoke(tool, dict(tool_input), timeout=timeout)
    if not isinstance(answer, dict):
        raise RemoteError(f"{tool} answered with something that is no object")
    return answer
