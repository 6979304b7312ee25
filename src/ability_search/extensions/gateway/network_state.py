"""The state of the network: which components have all of their tools."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.edges.tool_calls import LiveConnection

_BROKER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ComponentState:
    """A component as seen on the network."""

    providers: int
    """Number of providers; 1 if the broker lists tools without providers."""
    missing: tuple[str, ...] = ()
    """Its tools without a provider."""

    @property
    def is_up(self) -> bool:
        """Return whether all of its tools have a provider."""
        return not self.missing


def component_states(
    tools: Collection[Mapping[str, Any]], needed: Mapping[str, Sequence[str]]
) -> dict[str, ComponentState]:
    """Return the state of each component, given the visible tools and those that it must have."""
    seen = {str(tool.get("name")): tool for tool in tools}
    states = {}
    for component, names in needed.items():
        missing = tuple(name for name in names if name not in seen)
        counts = [len(seen[name].get("providers") or ("?",)) for name in names if name in seen]
        states[component] = ComponentState(0 if missing else min(counts), missing)
    return states


class ComponentStates:
    """Reads the states of the components; concurrent callers share one request to the broker.

    Args:
        live: The connection to the broker.
        needed: The tools that must be on the network, by component.
    """

    def __init__(self, live: LiveConnection, needed: Mapping[str, Sequence[str]]) -> None:
        self._live = live
        self._needed = needed
        self._reading: asyncio.Task[dict[str, ComponentState]] | None = None

    async def read(self) -> dict[str, ComponentState]:
        """Return the current state of each component.

        Raises:
            Unavailable: if the broker cannot be reached.
            KadiError: if it does not answer.
        """
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.create_task(self._read())
            reading.add_done_callback(self._end)
        return await asyncio.shield(reading)

    async def _read(self) -> dict[str, ComponentState]:
        connection = await self._live.connection()
        tools = await connection.list_tools(include_providers=True, timeout=_BROKER_SECONDS)
        return component_states(tools, self._needed)

    def _end(self, reading: asyncio.Task[dict[str, ComponentState]]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # retrieved: the callers may be gone
