"""Tools that the tests offer."""

from __future__ import annotations

import asyncio
from typing import Any

from kadi_client import Tool


async def echo(tool_input: dict[str, Any], _call: Any) -> Any:
    return tool_input


ECHO = Tool("echo", "Says it again", {"type": "object"}, echo)


class Forever:
    """A tool whose handler tells when it starts and when it is stopped, and does not end else."""

    def __init__(self) -> None:
        self.started, self.stopped = asyncio.Event(), asyncio.Event()
        self.tool = Tool("forever", "", {}, self.handle)

    async def handle(self, _input: Any, _call: Any) -> Any:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
