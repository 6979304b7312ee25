"""Metrics of incoming tool calls and of outgoing calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import (
    CALLS_IN_FLIGHT,
    RPC_CALLS,
    RPC_SECONDS,
    TOOL_CALL_SECONDS,
    TOOL_CALLS,
)
from kadi_client import Call, CallTimeout, NotConnected, Tool, ToolError
from kadi_client.provider import CANCELLED, FAILED, OK, outcome_of

T = TypeVar("T")

_REFUSED = "refused"


def metered_tools(tools: Iterable[Tool], meter: Meter) -> list[Tool]:
    """Return the tools with handlers that count and time each call.

    A result with ``success`` false counts under its ``code``, or as ``failed`` without one; an
    exception counts as ``failed``.
    """
    if meter is UNMETERED:
        return list(tools)
    in_flight: dict[tuple[str, ...], float] = {(): 0}
    meter.watch(CALLS_IN_FLIGHT, lambda: in_flight)
    return [_metered(tool, meter, in_flight) for tool in tools]


def _metered(tool: Tool, meter: Meter, in_flight: dict[tuple[str, ...], float]) -> Tool:
    async def handle(tool_input: dict[str, Any], call: Call) -> Any:
        started = time.perf_counter()
        code = FAILED
        in_flight[()] += 1
        try:
            answer = await tool.handler(tool_input, call)
            code = outcome_of(answer)
            return answer
        except asyncio.CancelledError:
            code = CANCELLED
            raise
        finally:
            in_flight[()] -= 1
            meter.add(TOOL_CALLS, 1, tool.name, code)
            meter.observe(TOOL_CALL_SECONDS, time.perf_counter() - started, tool.name)

    return replace(tool, handler=handle)


async def metered_rpc(meter: Meter, tool: str, answered: Awaitable[T]) -> T:
    """Await the answer of another component, and count and time the call."""
    started = time.perf_counter()
    outcome = FAILED
    try:
        answer = await answered
        # A model manager returns errors like the OpenAI API: with `error`, without `success`.
        outcome = _REFUSED if isinstance(answer, Mapping) and answer.get("error") else OK
        return answer
    except ToolError:
        outcome = _REFUSED
        raise
    except asyncio.CancelledError:
        outcome = CANCELLED
        raise
    except CallTimeout:
        outcome = "timeout"
        raise
    except NotConnected:
        outcome = "not_connected"
        raise
    finally:
        meter.add(RPC_CALLS, 1, tool, outcome)
        meter.observe(RPC_SECONDS, time.perf_counter() - started, tool)
