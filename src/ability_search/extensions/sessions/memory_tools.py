"""The memory of agents: four tools over the sessions of agents and their history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from ability_search.extensions.sessions.session_options import (
    EVERY,
    Scope,
    SessionErase,
    SessionErased,
    SessionId,
    SessionRead,
    SessionState,
    SessionWrite,
)
from ability_search.index.index_calls import Progress
from ability_search.search.response import QueryResult
from ability_search.tools.inputs import QueryInput
from ability_search.tools.results import FailedDocument
from ability_search.tools.tool_row import ToolRow
from ability_search.wire import Count, NonBlank

if TYPE_CHECKING:
    from ability_search.tools.calls import Handler, RunningCall, Services


class HistorySearch(Scope):
    """Input of memory-search."""

    session_id: SessionId = Field(
        EVERY, description="Session of the agent, or * for all of them.", examples=["monday"]
    )
    query: NonBlank = Field(description="What to search for.", examples=["when do backups run"])
    limit: Count = Field(10, ge=1, description="Maximum number of results.")
    as_of: str | None = Field(
        None,
        description="Time of the query, for words such as 'last week': YYYY-MM-DD or RFC 3339."
        " Default: now.",
    )


class SessionWritten(SessionState):
    """Result of memory-write: what was written, in parts."""

    chunks: int = Field(description="Chunks of the history that were stored.")
    failed: list[FailedDocument] = Field(description="Entries of the history that were not stored.")
    warnings: list[str] | None = None


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
    from ability_search.tools.handlers import answer_query

    sessions = Sessions(services.ports, services.indexing, services.sources)

    async def write(value: SessionWrite, _call: RunningCall) -> SessionWritten:
        report, state = await sessions.write(value, _unreported)
        await services.maintenance.after_write(report.collection)
        failed = [FailedDocument.model_validate(each.recorded()) for each in report.failed]
        return SessionWritten(
            **dict(state), chunks=report.chunks, failed=failed, warnings=report.warnings or None
        )

    async def read(value: SessionRead, _call: RunningCall) -> SessionState:
        return await sessions.read(value)

    async def search(value: HistorySearch, _call: RunningCall) -> QueryResult:
        asked = value.model_dump(include={"query", "limit", "as_of"}, exclude_none=True)
        if value.session_id != EVERY:
            asked["filter"] = {"metadata.session": value.session_id}
        return await answer_query(services, QueryInput(collection=value.collection, **asked))

    async def delete(value: SessionErase, _call: RunningCall) -> SessionErased:
        return await sessions.erase(value)

    return {
        "memory-write": write,
        "memory-read": read,
        "memory-search": search,
        "memory-delete": delete,
    }


async def _unreported(_progress: Progress) -> None:
    """Discard the progress of a call that has no job."""
