"""Plugin of the tools over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, StackComponent, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    """Return the commands."""
    return (Command("gateway", "ability_search.extensions.gateway.gateway_command", 300),)


@hookimpl
def register_components() -> Sequence[StackComponent]:
    """Return the components of the stack."""
    groups = frozenset({"broker", "gateway"})
    return (StackComponent("gateway", 60, ("gateway",), groups, extra="gateway"),)
