"""Plugin of answers with citations."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    """Return the commands."""
    return (Command("ask", "ability_search.extensions.answers.ask_command", 110),)


@hookimpl
def register_routes() -> Sequence[str]:
    """Return the modules of the routes of the gateway."""
    return ("ability_search.extensions.answers.ask_route",)
