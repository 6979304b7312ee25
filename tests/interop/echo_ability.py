"""An ability to be loaded over standard input and output: it does what its input says."""

from __future__ import annotations

import asyncio
from typing import Any

from kadi_client import Call, Tool, serve_stdio


async def value(tool_input: dict[str, Any], _call: Call) -> Any:
    return tool_input["value"]


async def fail(tool_input: dict[str, Any], _call: Call) -> None:
    raise RuntimeError(tool_input["text"])


async def announce(tool_input: dict[str, Any], call: Call) -> str:
    for data in tool_input["events"]:
        await call.publish("news.today", data)
    print("not a message")
    return "announced"


async def hold(_input: dict[str, Any], _call: Call) -> None:
    await asyncio.Event().wait()


ANY = {"type": "object"}
SCHEMA = {"type": "object", "properties": {"value": {}}, "required": ["value"]}
TOOLS = [
    Tool("value", "the value", SCHEMA, value),
    Tool("fail", "fails", ANY, fail),
    Tool("announce", "publishes", ANY, announce),
    Tool("hold", "never answers", ANY, hold),
]

if __name__ == "__main__":
    asyncio.run(serve_stdio(TOOLS, name="echo", version="1.2.3"))
