"""Collections and sources as MCP resources."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from ability_search.edges.tool_calls import Caller, report_of
from ability_search.errors import NotFound, SearchError
from ability_search.mcp.mcp_tools import failure_text
from kadi_client import ToolError

Context = ServerRequestContext[Any, Any]

COLLECTION = "search://collection/{collection}"
SOURCE = "search://collection/{collection}/source/{source}"

_URI = re.compile(r"search://collection/(?P<collection>[^/]+)(?:/source/(?P<source>[^/]+))?")
_JSON = "application/json"
_TEXT = "text/plain"
_PAGE = 200
"""Chunks per query."""
_DEEPEST = 10_000
"""Maximum number of chunks shown of a source: the largest offset of a query."""
_COMPLETIONS = 100
"""Maximum number of completions that the protocol allows."""
_SOURCES = 10_000
"""Maximum number of sources to search for completions."""


def collection_uri(collection: str) -> str:
    """Return the URI of the resource that describes a collection."""
    return COLLECTION.format(collection=quote(collection, safe=""))


class Resources:
    """The handlers of ``resources/*`` and of ``completion/complete``."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def listing(
        self, _ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """List the collections; sources, which may be many, are only available by template."""
        answer = await self._read("search-collections", {})
        return ListResourcesResult(
            resources=[
                Resource(
                    uri=collection_uri(item["name"]),
                    name=item["name"],
                    title=f"Collection {item['name']}",
                    description=f"{item['sources']} sources in {item['chunks']} chunks,"
                    f" embedded with {item['model']}.",
                    mime_type=_JSON,
                )
                for item in answer["collections"]
            ]
        )

    async def templates(
        self, _ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """List the URI templates."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=COLLECTION,
                    name="collection",
                    title="A collection",
                    description="Its size, its model and its sources.",
                    mime_type=_JSON,
                ),
                ResourceTemplate(
                    uri_template=SOURCE,
                    name="source",
                    title="A source",
                    description="The indexed text of one source of a collection.",
                    mime_type=_TEXT,
                ),
            ]
        )

    async def read(self, _ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Return a collection as JSON, or a source as text.

        Raises:
            MCPError: if it does not exist, or the network does not answer.
        """
        match = _URI.fullmatch(params.uri)
        if match is None:
            known = f"{COLLECTION} or {SOURCE}"
            raise MCPError(INVALID_PARAMS, f"no resource {params.uri}; expected {known}")
        collection, source = (part and unquote(part) for part in match.groups())
        if source is None:
            text, kind = await self.described(collection), _JSON
        else:
            text, kind = await self._text(collection, source), _TEXT
        content = TextResourceContents(uri=params.uri, mime_type=kind, text=text)
        return ReadResourceResult(contents=[content])

    async def described(self, collection: str) -> str:
        """Return the result of search-collection-info as JSON; raises as :meth:`read`."""
        info = await self._read("search-collection-info", {"collection": collection})
        return json.dumps(info, ensure_ascii=False, indent=2)

    async def complete(self, _ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        """Complete the name of a collection or source."""
        begun = params.argument.value
        known = (params.context.arguments if params.context else None) or {}
        names: Sequence[str] = ()
        if params.argument.name == "collection":
            answer = await self._read("search-collections", {})
            names = [item["name"] for item in answer["collections"]]
        elif params.argument.name == "source" and "collection" in known:
            page = {"collection": known["collection"], "limit": _SOURCES}
            names = (await self._read("search-collection-info", page))["sources"]
        fitting = [name for name in names if name.startswith(begun)]
        return CompleteResult(
            completion=Completion(
                values=fitting[:_COMPLETIONS],
                total=len(fitting),
                has_more=len(fitting) > _COMPLETIONS,
            )
        )

    async def _text(self, collection: str, source: str) -> str:
        """Return the chunks of a source in text order, separated by empty lines."""
        hits: list[dict[str, Any]] = []
        query = {
            "collection": collection,
            "query": source,
            "mode": "semantic",
            "filter": {"source": source},
            "understand": False,
            "limit": _PAGE,
        }
        for offset in range(0, _DEEPEST, _PAGE):
            page = (await self._read("search-query", {**query, "offset": offset}))["results"]
            hits += page
            if len(page) < _PAGE:
                break
        if not hits:
            raise _error(NotFound("source", source))
        hits.sort(key=lambda hit: int(hit["chunkIndex"]))
        return "\n\n".join(hit["content"] for hit in hits)

    async def _read(self, tool: str, tool_input: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._caller.read(tool, tool_input)
        except (SearchError, ToolError) as exc:
            raise _error(exc) from exc


def _error(exc: SearchError | ToolError) -> MCPError:
    report = report_of(exc, "resource")
    is_caller_error = report.get("code") in ("not_found", "invalid_input")
    return MCPError(INVALID_PARAMS if is_caller_error else INTERNAL_ERROR, failure_text(report))
