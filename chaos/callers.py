"""The three ways to call a tool: over KADI, over HTTP and over MCP."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
from mcp import Client
from mcp_types import TextContent

from kadi_client import CallTimeout, Connection, KadiError, NoProvider, ToolError

REFUSED = frozenset(
    {
        "dimension_mismatch",
        "forbidden_path",
        "invalid_input",
        "model_mismatch",
        "no_provider",
        "not_found",
        "rate_limited",
        "too_large",
        "unsupported_media_type",
    }
)
"""Codes of failures that change nothing."""

PASSING = frozenset({"no_provider", "rate_limited"})
"""Those of them that pass: a component restarts, or the attacks come from the same address."""

CODES = REFUSED | {
    "busy",
    "cancelled",
    "database_unavailable",
    "embedding_unavailable",
    "timeout",
    "unavailable",
}
"""Codes that a tool or the gateway may answer with; ``internal`` is a defect."""

_FAILURE = re.compile(r"(\w+): (.*?)(?:\s+Hint: (.*))?", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """What became of a call.

    Attributes:
        answer: The result; ``None`` if there is none.
        code: Code of the failure; empty for a success, ``lost`` if there was no answer.
        text: What the failure says.
        hint: Its hint.
        seconds: Duration of the call.
    """

    answer: dict[str, Any] | None
    seconds: float
    code: str = ""
    text: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.answer is not None

    @property
    def refused(self) -> bool:
        """Whether the call certainly changed nothing."""
        return self.code in REFUSED


class Caller(Protocol):
    """Calls tools; never raises for a failure of the call."""

    async def call(self, tool: str, tool_input: dict[str, Any], timeout: float) -> Outcome:
        """Call a tool and wait at most ``timeout`` seconds."""


@dataclass
class KadiCaller:
    """Calls tools over a connection to the broker."""

    connection: Connection

    async def call(self, tool: str, tool_input: dict[str, Any], timeout: float) -> Outcome:
        """Call a tool and wait at most ``timeout`` seconds."""
        began = time.monotonic()
        try:
            answer = await self.connection.invoke(tool, tool_input, timeout=timeout)
        except ToolError as exc:
            return Outcome(None, time.monotonic() - began, exc.code, str(exc), exc.hint)
        except NoProvider as exc:
            return Outcome(None, time.monotonic() - began, "no_provider", str(exc), "-")
        except CallTimeout as exc:
            return Outcome(None, time.monotonic() - began, "lost", str(exc), "-")
        except KadiError as exc:
            text = f"{type(exc).__name__}: {exc}"
            return Outcome(None, time.monotonic() - began, "lost", text, "-")
        return Outcome(answer, time.monotonic() - began)


@dataclass
class HttpCaller:
    """Calls tools over the gateway's ``POST /tools/{name}``."""

    client: httpx.AsyncClient

    async def call(self, tool: str, tool_input: dict[str, Any], timeout: float) -> Outcome:
        """Call a tool and wait at most ``timeout`` seconds."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                response = await self.client.post(f"/tools/{tool}", json=tool_input)
            answer = response.json()
        except (httpx.HTTPError, TimeoutError, ValueError) as exc:
            text = f"{type(exc).__name__}: {exc}"
            return Outcome(None, time.monotonic() - began, "lost", text, "-")
        seconds = time.monotonic() - began
        if response.status_code == httpx.codes.OK:
            return Outcome(answer, seconds)
        fields = (str(answer.get(name, "")) for name in ("code", "detail", "hint"))
        return Outcome(None, seconds, *fields)


@dataclass
class McpCaller:
    """Calls tools over MCP; each call is a session of its own, as a new assistant's would be."""

    url: str
    modes: tuple[str, ...] = ("legacy", "auto")
    _calls: int = field(default=0, init=False)

    async def call(self, tool: str, tool_input: dict[str, Any], timeout: float) -> Outcome:
        """Call a tool and wait at most ``timeout`` seconds."""
        began = time.monotonic()
        self._calls += 1
        mode = self.modes[self._calls % len(self.modes)]
        try:
            async with asyncio.timeout(timeout):
                return await self._call(tool, tool_input, timeout, mode, began)
        except Exception as exc:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from exc
            return Outcome(None, time.monotonic() - began, "lost", _first(exc), "-")

    async def _call(
        self, tool: str, tool_input: dict[str, Any], timeout: float, mode: str, began: float
    ) -> Outcome:
        async with Client(self.url, mode=mode, read_timeout_seconds=timeout) as client:
            result = await client.call_tool(tool, tool_input)
            seconds = time.monotonic() - began
        (content,) = result.content
        text = content.text if isinstance(content, TextContent) else ""
        if result.is_error:
            found = _FAILURE.fullmatch(text)
            fields = found.groups("") if found else ("unreadable", text, "")
            return Outcome(None, seconds, *fields)
        answer = result.structured_content
        if answer != json.loads(text):
            return Outcome(None, seconds, "unreadable", "text and structure differ", "")
        return Outcome(answer, seconds)


def _first(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"
