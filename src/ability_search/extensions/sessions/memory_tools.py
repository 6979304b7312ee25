"""The memory of agents: four tools over the sessions of agents and their history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ability_search.extensions.sessions.session_options import (
    HistorySearch,
    SessionErase,
    SessionErased,
    SessionRead,
    SessionState,
    SessionWrite,
    SessionWritten,
)
from ability_search.search.response import QueryResult
from ability_search.tools.tool_row import ToolRow

if TYPE_CHECKING:
    from ability_search.tools.calls import Handler, Services


MEMORY: tuple[ToolRow, ...] = (
    ToolRow(
        name="memory-write",
        title="Write to the memory",
        summary="Write to the scratchpad, the tasks and the history of a session of an agent.",
        usage="Use it for what you need later in this or another conversation. Repeating a call"
        " adds new tasks and the history again.",
        params=SessionWrite,
        result=SessionWritten,
        idempotent=False,
    ),
    ToolRow(
        name="memory-read",
        title="Read the memory",
        summary="Read the scratchpad, the tasks and the latest history of a session.",
        usage="Use it at the start of a conversation.",
        params=SessionRead,
        result=SessionState,
        lean=("agentId", "sessionId", "include"),
        read_only=True,
    ),
    ToolRow(
        name="memory-search",
        title="Search the memory",
        summary="Search the history of all sessions of an agent, or of one.",
        usage="Use it to recall what was said; hits have the session, role and time as metadata.",
        params=HistorySearch,
        result=QueryResult,
        lean=("agentId", "query", "limit"),
        read_only=True,
        work=lambda value: value.limit,
    ),
    ToolRow(
        name="memory-delete",
        title="Delete from the memory",
        summary="Delete single records, a session, all of an agent, or what is old.",
        usage="This cannot be undone; dryRun only counts.",
        params=SessionErase,
        result=SessionErased,
        lean=("agentId", "sessionId", "before", "dryRun"),
        destructive=True,
    ),
)


def open_memory(services: Services) -> Mapping[str, Handler]:
    """Return the handlers of the tools by name."""
    from ability_search.extensions.sessions.sessions import Sessions

    sessions = Sessions(services)
    return {
        "memory-write": sessions.write,
        "memory-read": sessions.read,
        "memory-search": sessions.search,
        "memory-delete": sessions.erase,
    }
