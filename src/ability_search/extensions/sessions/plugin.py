"""Plugin of the memory of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ability_search.extension import Command, hookimpl

if TYPE_CHECKING:
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage, StageFactory
    from ability_search.tools.calls import Handler, Services
    from ability_search.tools.tool_row import ToolRow


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("memory", "ability_search.extensions.sessions.agent_memory", 200),)


@hookimpl
def register_query_options() -> Sequence[type[QueryInput]]:
    from ability_search.extensions.sessions import DecayOptions

    return (DecayOptions,)


@hookimpl
def register_stages() -> Sequence[Stage | StageFactory]:
    from ability_search.extensions.sessions.decay import DECAY, USE, use_count

    return (USE, DECAY, use_count)


@hookimpl
def register_tools() -> Sequence[ToolRow]:
    from ability_search.extensions.sessions.memory_tools import MEMORY

    return MEMORY


@hookimpl
def open_tools(services: Services) -> Mapping[str, Handler]:
    from ability_search.extensions.sessions.memory_tools import MEMORY
    from ability_search.extensions.sessions.sessions import Sessions

    sessions = Sessions(services)
    return {row.name: getattr(sessions, row.name.removeprefix("memory-")) for row in MEMORY}
