"""One call of a tool, whose failure is raised."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ability_search.client.failures import ToolFailure
from kadi_client import Connection, RemoteError
from kadi_client.context import calling

log = logging.getLogger(__name__)


async def call_tool(
    connection: Connection, tool: str, tool_input: Mapping[str, Any], *, timeout: float
) -> dict[str, Any]:
    """Call a tool.

    Raises:
        ToolFailure: if it answers that it failed.
        KadiError: if it does not answer, or not with an object.
    """
    with calling(tool_input):
        log.debug("%s is called", tool)
        answer = await connection.invoke(tool, dict(tool_input), timeout=timeout)
    if not isinstance(answer, dict):
        raise RemoteError(f"{tool} answered with something that is no object")
    if answer.get("success") is False:
        raise ToolFailure(answer)
    return answer
