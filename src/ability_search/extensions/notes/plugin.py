"""Plugin of the analysis of collections and their links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ability_search.extension import Command, SearchOptions, hookimpl

if TYPE_CHECKING:
    from ability_search.index.index_ports import AddedSteps
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage
    from ability_search.tools.calls import Handler, Services
    from ability_search.tools.tool_row import ToolRow


@hookimpl
def register_commands() -> Sequence[Command]:
    return (
        Command("analyze", "ability_search.extensions.notes.note_commands", 180),
        Command("paths", "ability_search.extensions.notes.note_commands", 185),
        Command("consolidate", "ability_search.extensions.notes.note_commands", 190),
    )


@hookimpl
def register_search_options() -> Sequence[type[SearchOptions]]:
    from ability_search.extensions.notes.note_commands import HopsOption

    return (HopsOption,)


@hookimpl
def register_routes() -> Sequence[str]:
    """Return the modules of the routes of the gateway."""
    return ("ability_search.extensions.notes.graph_route",)


@hookimpl
def register_query_options() -> Sequence[type[QueryInput]]:
    """Return the options of search-query."""
    from ability_search.extensions.notes import GraphOptions

    return (GraphOptions,)


@hookimpl
def register_stages() -> Sequence[Stage]:
    """Return the stages of a query."""
    from ability_search.extensions.notes.graph_stages import (
        GRAPH_BOOST,
        GRAPH_EXPANSION,
        GRAPH_SCORES,
    )

    return (GRAPH_EXPANSION, GRAPH_SCORES, GRAPH_BOOST)


@hookimpl
def register_steps() -> AddedSteps:
    """Return the steps of indexing."""
    from ability_search.extensions.notes.note_links import carry_links
    from ability_search.index.index_ports import AddedSteps

    return AddedSteps(carry=[carry_links])


@hookimpl
def register_tools() -> Sequence[ToolRow]:
    """Return the tools of notes."""
    from ability_search.extensions.notes.note_tools import NOTES

    return NOTES


@hookimpl
def open_tools(services: Services) -> Mapping[str, Handler]:
    from ability_search.extensions.notes.note_calls import NoteTools
    from ability_search.extensions.notes.note_tools import NOTES

    tools = NoteTools(services)
    return {row.name: getattr(tools, row.name.removeprefix("notes-")) for row in NOTES}
