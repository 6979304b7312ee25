"""The state of the network: which components have all of their tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ability_search.tools.table import TOOLS
from kadi_client import Connection

NEEDED: Mapping[str, tuple[str, ...]] = {
    "database": ("arcade-query", "arcade-command", "arcade-batch", "arcade-db-create"),
    "models": ("create-embedding",),
    "worker": tuple(row.name for row in TOOLS),
}
"""The tools that each component provides to the others."""


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


def component_states(tools: Collection[Mapping[str, Any]]) -> dict[str, ComponentState]:
    """Return the state of each component, given the visible tools."""
    seen = {str(tool.get("name")): tool for tool in tools}
    states = {}
    for component, names in NEEDED.items():
        missing = tuple(name for name in names if name not in seen)
        counts = [len(seen[name].get("providers") or ("?",)) for name in names if name in seen]
        states[component] = ComponentState(0 if missing else min(counts), missing)
    return states


async def read_states(connection: Connection, *, timeout: float) -> dict[str, ComponentState]:
    """Return the current state of each component.

    Raises:
        KadiError: if the broker does not answer.
    """
    return component_states(await connection.list_tools(include_providers=True, timeout=timeout))
