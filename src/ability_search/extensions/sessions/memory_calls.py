"""The memory of agents over HTTP and MCP: four calls, each of one tool of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from ability_search.tools.inputs import (
    EVERY,
    CollectionName,
    CollectionsInput,
    DeleteInput,
    DocumentInput,
    IndexInput,
    Scope,
    SessionErase,
    SessionId,
    SessionRead,
    SessionWrite,
)
from ability_search.tools.results import CollectionsResult, DeleteResult, IndexResult
from ability_search.tools.table import BY_NAME, TOOLS, ToolRow
from ability_search.wire import Count, NonBlank


class HistorySearch(Scope):
    """A search in the history of an agent."""

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


class IndexDocuments(IndexInput):
    """Input of search-index."""

    collection: CollectionName
    documents: list[DocumentInput] = Field(description="Documents to index.", min_length=1)
    session: SkipJsonSchema[None] = None


class DeleteDocuments(DeleteInput):
    """Input of search-delete."""

    collection: CollectionName
    session: SkipJsonSchema[None] = None


class ListCollections(CollectionsInput):
    """Input of search-collections."""

    session: SkipJsonSchema[None] = None


MEMORY: Mapping[str, ToolRow] = {
    row.name: row
    for row in (
        ToolRow(
            name="memory-write",
            title="Write to the memory",
            summary="Write to the scratchpad, the tasks and the history of a session of an agent.",
            usage="Use it for what you need later in this or another conversation.",
            params=SessionWrite,
            result=IndexResult,
            idempotent=False,
        ),
        ToolRow(
            name="memory-read",
            title="Read the memory",
            summary="Read the scratchpad, the tasks and the latest history of a session.",
            usage="Use it at the start of a conversation.",
            params=SessionRead,
            result=CollectionsResult,
            read_only=True,
        ),
        ToolRow(
            name="memory-search",
            title="Search the memory",
            summary="Search the history of all sessions of an agent, or of one.",
            usage="Use it to recall what was said; hits have the session, role and time as"
            " metadata.",
            params=HistorySearch,
            result=BY_NAME["search-query"].result,
            read_only=True,
        ),
        ToolRow(
            name="memory-delete",
            title="Delete from the memory",
            summary="Delete single records, a session, all of an agent, or what is old.",
            usage="This cannot be undone; dryRun only counts.",
            params=SessionErase,
            result=DeleteResult,
            destructive=True,
        ),
    )
}
"""The calls by name, in the order of listing."""

_WITHOUT_SESSION: Mapping[str, type[BaseModel]] = {
    "search-index": IndexDocuments,
    "search-delete": DeleteDocuments,
    "search-collections": ListCollections,
}

LISTED: Mapping[str, ToolRow] = {
    **{row.name: replace(row, params=_WITHOUT_SESSION.get(row.name, row.params)) for row in TOOLS},
    **MEMORY,
}
"""The tools without their option ``session``, and the calls that replace it.

So each schema states what is required. A schema with the option would need ``anyOf`` at the top
level, which the APIs of language models refuse.
"""

_TOOLS = {
    "memory-write": "search-index",
    "memory-read": "search-collections",
    "memory-delete": "search-delete",
}
"""Tools that take the input of a call as their option ``session``."""


def memory_call(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool of the network that a call of :data:`MEMORY` is, and its input.

    Raises:
        ValidationError: if the input is invalid; it names every invalid field.
    """
    value = MEMORY[name].params.model_validate(given)
    if not isinstance(value, HistorySearch):
        session = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return _TOOLS[name], {"session": session}
    query = value.model_dump(by_alias=True, include={"query", "limit", "as_of"}, exclude_none=True)
    if value.session_id != EVERY:
        query["filter"] = {"metadata.session": value.session_id}
    return "search-query", {"collection": value.collection, **query}
