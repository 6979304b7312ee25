"""Running the handlers of served tools."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from opentelemetry.trace import SpanKind

from kadi_client import messages, tracing
from kadi_client.context import handling
from kadi_client.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_ERROR,
    FrameTooLarge,
    ProtocolError,
)
from kadi_client.params import Invocation
from kadi_client.slots import FairSlots, Full
from kadi_client.tools import Tool, without_routing

logger = logging.getLogger(__name__)

CANCEL_SECONDS = 1.0
"""Seconds a cancelled handler may take to clean up before it is abandoned."""

OK = "ok"
CANCELLED = "cancelled"
FAILED = "failed"
"""Outcomes of calls, in addition to the error codes that tools return."""

_CODE = re.compile(r"[a-z0-9_]{1,64}")

_MCP = "mcp"
"""``_meta.callerProtocol`` of a caller to whom a broker forwards answers to MCP unchanged."""

_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri",),
}
"""String members that a content block of MCP must have, by its type."""

NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors of encoding a value that is not JSON."""

OnBusy = Callable[[str], Any]

Observe = Callable[[str, str, float], None]
"""A callback for each call that has ended: tool, outcome, duration in seconds. Must not raise."""


def noted(tool: str, outcome: str, seconds: float, *, level: int = logging.DEBUG) -> None:
    """Log the end of a call; the default of :data:`Observe`."""
    logger.log(level, "%s: %s in %.1f ms", tool, outcome, seconds * 1e3)


class Caller(ABC):
    """The sender of invocations; after it has disconnected, the methods do nothing."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a message without waiting.

        Raises:
            FrameTooLarge: if it exceeds the message limit.
        """

    @abstractmethod
    async def drain(self) -> None:
        """Wait while the peer is slow to read."""

    @abstractmethod
    def send_event(self, channel: str, data: Any) -> None:
        """Send an event without waiting; raises as :meth:`respond` does."""

    def respond(self, id_: messages.Raw, result: Any) -> None:
        """Send the result of a request without waiting.

        Raises:
            FrameTooLarge: if the result exceeds the message limit.
            TypeError, ValueError, OverflowError, RecursionError: if it is not JSON.
        """
        self.send(messages.response(id_, result))

    def fail(self, id_: messages.Raw | None, message: str, *, code: int = SERVER_ERROR) -> None:
        """Send the error of a request without waiting; an overlong text is truncated."""
        try:
            self.send(messages.error_response(id_, messages.short_text(message), code=code))
        except FrameTooLarge as exc:
            logger.warning("error response of %d bytes dropped", exc.size)

    async def publish(self, channel: str, data: Any) -> None:
        """Publish an event; one that cannot be sent is dropped."""
        try:
            self.send_event(channel, data)
        except (FrameTooLarge, *NOT_JSON) as exc:
            logger.warning("event on %s not published: %s", channel, type(exc).__name__)
            return
        await self.drain()


class _Refused(ProtocolError):
    """A call that fails outside its handler, with the code of the error response."""


class _Call:
    """A call in progress; its caller gets results and errors in the form of its protocol."""

    def __init__(self, invocation: Invocation, caller: Caller, session: Hashable) -> None:
        self.invocation = invocation
        self.request_id, self.origin = invocation.request_id, invocation.origin
        self.session = session
        self.abandoned = False
        self.deadline: float | None = None
        if invocation.timeout is not None:
            self.deadline = asyncio.get_running_loop().time() + invocation.timeout
        self.caller = caller

    @property
    def remaining(self) -> float | None:
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    async def publish(self, channel: str, data: Any) -> None:
        await self.caller.publish(channel, data)

    async def succeed(self, result: Any, *, structured: bool) -> bool:
        """Send a result, or an error if that is not possible; return True if it was sent."""
        tool = self.invocation.tool
        try:
            if self.origin.protocol == _MCP:
                result = _call_result(result, structured=structured)
            self.caller.respond(self.invocation.id, result)
        except FrameTooLarge as exc:
            self.fail(f"the result of {tool} is too large: {exc}; ask for less at a time")
            return False
        except NOT_JSON as exc:
            self.fail(f"{tool} returned a value that is not JSON: {exc}")
            return False
        await self.caller.drain()
        return True

    def fail(self, message: str, *, code: int = SERVER_ERROR) -> None:
        """Send an error."""
        if self.origin.protocol == _MCP:
            content = [{"type": "text", "text": messages.short_text(message)}]
            with suppress(FrameTooLarge):
                result = {"content": content, "isError": True}
                return self.caller.respond(self.invocation.id, result)
        return self.caller.fail(self.invocation.id, message, code=code)


class Provider:
    """A set of tools and their running calls.

    At most ``max_concurrent`` handlers run at a time, at most half of them for one caller, and
    ``max_queued`` calls wait, at most a quarter of them of one caller. Callers take turns; the
    calls of one caller are served in order of arrival. Further calls are refused at once. The
    deadline of a call counts from its arrival, including the wait, and cancels the handler, since
    the caller no longer waits.

    Args:
        tools: Tools to serve from the start.
        max_concurrent: Maximum number of handlers running at a time, half of them for one caller.
        max_queued: Maximum number of calls waiting for a handler.
        observe: Callback for each call that has ended.
        on_busy: Returns the answer to a refused call, given the name of its tool; if not given,
            a refused call gets an error.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        max_concurrent: int = 128,
        max_queued: int = 1024,
        observe: Observe = noted,
        on_busy: OnBusy | None = None,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError("max_concurrent must be at least 1")
        self.tools: tuple[Tool, ...] = ()
        self._by_name: dict[str, Tool] = {}
        self._slots = FairSlots(max_concurrent, max_waiting=max_queued, reserve=True)
        self._max_tasks = max_concurrent + max_queued
        self._on_busy = on_busy
        self._calls: dict[asyncio.Task[None], _Call] = {}
        self._by_request: dict[tuple[Hashable, str], asyncio.Task[None]] = {}
        self._draining = False
        self._observe = observe
        self.replace(tools)

    def replace(self, tools: Iterable[Tool]) -> None:
        """Serve these tools from now on; running calls are not affected.

        Raises:
            ValueError: if two tools share a name.
        """
        offered = tuple(tools)
        by_name = {tool.name: tool for tool in offered}
        if len(by_name) != len(offered):
            raise ValueError("tools: two tools share a name")
        self.tools = offered
        self._by_name = by_name

    def accept(self, invocation: Invocation, caller: Caller, *, session: Hashable = None) -> None:
        """Run a call in the background; its outcome goes to ``caller``.

        Request ids are unique within a ``session``.
        """
        call = _Call(invocation, caller, session)
        if self._draining:
            caller.fail(invocation.id, "the provider is shutting down")
        elif len(self._calls) >= self._max_tasks:
            self._refuse(call)
        else:
            task = asyncio.create_task(self._answer(call))
            self._calls[task] = call
            self._by_request[session, invocation.request_id] = task
            task.add_done_callback(self._forget)

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def waiting(self) -> int:
        """Number of calls waiting for their turn."""
        return self._slots.waiting

    def cancel(self, request_id: str, *, session: Hashable = None, abandoned: bool = False) -> None:
        """Cancel a call; ignore an unknown one. For ``abandoned`` see :attr:`Call.abandoned`."""
        task = self._by_request.get((session, request_id))
        if task is not None:
            self._calls[task].abandoned = abandoned
            task.cancel()

    def cancel_all(self, session: Hashable = None) -> None:
        """Cancel all calls of a session that is gone."""
        self._abandon([task for task, call in self._calls.items() if call.session == session])

    async def drain(self, grace: float) -> None:
        """Refuse new calls, wait for the running ones, cancel them after ``grace`` seconds.

        Does not wait for the call that it is called from.
        """
        self._draining = True
        current = asyncio.current_task()
        running = {task for task in self._calls if task is not current}
        if running:
            _, running = await asyncio.wait(running, timeout=grace)
        if running:
            logger.warning("%d calls cancelled after a grace of %g s", len(running), grace)
            self._abandon(running)
            _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)
        if running:
            logger.error("%d calls ignore their cancellation", len(running))

    def _abandon(self, running: Iterable[asyncio.Task[None]]) -> None:
        for task in running:
            self._calls[task].abandoned = True
            task.cancel()

    def _refuse(self, call: _Call) -> None:
        logger.warning("request %s refused: %d calls open", call.request_id, len(self))
        if self._on_busy is None:
            call.fail("the provider is busy: too many calls are waiting")
        else:
            call.caller.respond(call.invocation.id, self._on_busy(call.invocation.tool))

    def _forget(self, task: asyncio.Task[None]) -> None:
        # A cancelled task keeps the traceback of its error until that is asked for, and with it the
        # values of all frames, some of which refer to the task.
        with suppress(asyncio.CancelledError):
            task.exception()
        call = self._calls.pop(task)
        key = call.session, call.request_id
        if self._by_request.get(key) is task:
            del self._by_request[key]

    async def _answer(self, call: _Call) -> None:
        """Handle a call in its own context and span, and report the outcome to the observer."""
        clock = asyncio.get_running_loop().time
        began, outcome = clock(), CANCELLED
        invocation, tool = call.invocation, self._by_name.get(call.invocation.tool)
        name = tool.name if tool else "unknown tool"
        tool_input, hints = _given(invocation, tool)
        with (
            handling(
                {**hints, **invocation.context},
                otherwise=invocation.request_id,
                caller=invocation.origin.agent_id,
            ) as context,
            tracing.span(name, SpanKind.SERVER, tracing.RPC, parent=context.traceparent) as span,
        ):
            try:
                outcome = await self._conclude(call, tool, tool_input)
            finally:
                if outcome != OK:
                    tracing.fail(span, outcome)
                self._observe(name, outcome, clock() - began)

    async def _conclude(
        self, call: _Call, tool: Tool | None, tool_input: dict[str, Any] | _Refused
    ) -> str:
        """Run a call, send its result or its error, and return the outcome."""
        name = call.invocation.tool
        try:
            if tool is None:
                raise _Refused(f"unknown tool: {name}", code=METHOD_NOT_FOUND)
            result = await self._run(call, tool, tool_input)
        except asyncio.CancelledError:
            call.fail(f"the call of {name} was cancelled")
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return CANCELLED
        except Full:
            self._refuse(call)
        except _Refused as exc:
            call.fail(str(exc), code=exc.code)
        except Exception as exc:
            kind = type(exc).__name__
            logger.warning("request %s: %s failed with %s", call.request_id, name, kind)
            logger.debug("request %s failed", call.request_id, exc_info=exc)
            call.fail(str(exc) or kind)
        else:
            if await call.succeed(result, structured=tool.output_schema is not None):
                return outcome_of(result)
        return FAILED

    async def _run(self, call: _Call, tool: Tool, tool_input: dict[str, Any] | _Refused) -> Any:
        if isinstance(tool_input, _Refused):
            raise tool_input
        try:
            async with asyncio.timeout_at(call.deadline) as limit:
                async with self._slots.slot(call.origin.public_key or call.session):
                    return await tool.handler(tool_input, call)
        except TimeoutError as exc:
            if not limit.expired():
                raise
            text = f"{tool.name} did not finish within {call.invocation.timeout:g} s"
            raise _Refused(text, code=SERVER_ERROR) from exc


def _given(
    invocation: Invocation, tool: Tool | None
) -> tuple[dict[str, Any] | _Refused, dict[str, Any]]:
    """Return the input, or why it is unusable, and the routing hints."""
    most = None if tool is None else tool.max_values
    if most is not None and messages.has_more_values(bytes(invocation.input), most):
        text = f"toolInput: more than {most} objects and arrays in one call: send less at a time"
        return _Refused(text, code=INVALID_PARAMS), {}
    try:
        return without_routing(messages.decode(invocation.input))
    except ProtocolError as exc:
        return _Refused(f"toolInput: {exc}", code=exc.code), {}
    except TypeError as exc:
        return _Refused(str(exc), code=INVALID_PARAMS), {}


def outcome_of(result: Any) -> str:
    """Return ``ok``, or the code of a result that reports a failure."""
    if not isinstance(result, Mapping) or result.get("success") is not False:
        return OK
    code = result.get("code")
    return code if isinstance(code, str) and _CODE.fullmatch(code) else FAILED


def _call_result(result: Any, *, structured: bool) -> Mapping[str, Any]:
    """Return a tool's result as a CallToolResult (MCP 2025-06-18); one already is unchanged.

    Args:
        result: A JSON value, or raw JSON.
        structured: Also return an object as ``structuredContent``, as MCP requires of tools with
            an output schema.
    """
    value = messages.decode(result) if isinstance(result, messages.Raw) else result
    if isinstance(value, Mapping):
        content = value.get("content")
        blocks = isinstance(content, list) and content and all(map(_is_block, content))
        if blocks or isinstance(value.get("structuredContent"), Mapping):
            return value
    failed = isinstance(value, Mapping) and value.get("success") is False
    shaped: dict[str, Any] = {
        "content": [{"type": "text", "text": messages.encode(result).decode()}],
        "isError": failed,
    }
    if structured and isinstance(value, Mapping) and not failed:
        shaped["structuredContent"] = result
    return shaped


def _is_block(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    if kind == "resource":
        return isinstance(block.get("resource"), Mapping)
    members = _BLOCKS.get(kind) if isinstance(kind, str) else None
    return members is not None and all(isinstance(block.get(name), str) for name in members)
