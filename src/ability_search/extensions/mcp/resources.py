"""Collections, sources, chunks and the descriptions of tools as MCP resources, and the prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ability_search.errors import InvalidInput, NotFound, SearchError
from ability_search.extensions.cli.tool_calls import Caller, report_of
from ability_search.tools.table import all_tools, tool_named
from kadi_client import ToolError

Context = ServerRequestContext[Any, Any]

COLLECTION = "search://collection/{collection}"
SOURCE = "search://collection/{collection}/source/{source}"
CHUNK = "search://collection/{collection}/chunk/{chunk}"
TOOL = "search://tool/{tool}"

_URI = re.compile(
    r"search://(?:tool/(?P<tool>[^/]+)|collection/(?P<collection>[^/]+)"
    r"(?:/source/(?P<source>[^/]+)|/chunk/(?P<chunk>[^/]+))?)"
)
_JSON = "application/json"
_TEXT = "text/plain"
_PAGE = 200
"""Chunks per call."""
_DEEPEST = 10_000
"""Maximum number of chunks shown of a source."""
_TEMPLATES = (
    (COLLECTION, "A collection", "Its size, its model and its sources.", _JSON),
    (SOURCE, "A source", "The indexed text of one source of a collection.", _TEXT),
    (CHUNK, "A chunk", "The text of one chunk, as named by a hit.", _TEXT),
    (TOOL, "A tool", "The schemas of its input and its result.", _JSON),
)

_COLLECTION = "Name of the collection."
_ANSWER = types.Prompt(
    name="answer-from-collection",
    title="Answer from the index",
    description="Answer a question from indexed texts only, with a source for each statement.",
    arguments=[
        types.PromptArgument(name="question", description="The question.", required=True),
        types.PromptArgument(name="collection", description=f"{_COLLECTION} Default: all."),
    ],
)
_EXPLORE = types.Prompt(
    name="explore-collection",
    title="Explore a collection",
    description="Find out what a collection contains and which questions it can answer.",
    arguments=[types.PromptArgument(name="collection", description=_COLLECTION, required=True)],
)
_ANSWER_TEXT = """\
Answer this question only from texts indexed in ability-search:

{question}

1. Call search-query with collection "{collection}", the question in your own words, expand \
"section" and maxResultTokens 4000. If the question contains names, identifiers or error messages, \
call it once more with mode "keyword".
2. If the hits do not answer the question, search again with other words, at most twice.
3. Answer briefly. After each statement cite its source and line from the hit, such as \
[guide/install.md:12].
4. If hits contradict each other, say so and cite both. If the hits contain no answer, say so, and \
say what you searched for."""
_EXPLORE_TEXT = """\
Explore this collection, which is described above. Look at its sources, then call search-query on \
it three to five times with queries that its sources suggest, and search-similar on a typical hit. \
Report in at most fifteen lines: what it is about, what kinds of texts it contains, how recent it \
is, five questions that it answers well, and what seems to be missing."""


def collection_uri(collection: str) -> str:
    """Return the URI of the resource that describes a collection."""
    return COLLECTION.format(collection=quote(collection, safe=""))


def chunk_uri(collection: str, chunk_id: str) -> str:
    """Return the URI of the resource with the text of a chunk."""
    return CHUNK.format(collection=quote(collection, safe=""), chunk=quote(chunk_id, safe=""))


def failure_text(report: Mapping[str, Any]) -> str:
    """Return the text of a failure for a model: the error, the hint, whether to retry."""
    lines = [f"{report.get('code')}: {report.get('error')}"]
    if report.get("hint"):
        lines.append(f"Hint: {report['hint']}")
    if report.get("retryable"):
        after = report.get("retryAfterMs")
        lines.append(f"Retry after {after} ms." if after else "A retry may succeed.")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Resources:
    """The handlers of ``resources/*``."""

    caller: Caller

    async def listing(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List the collections; sources, which may be many, are only available by template."""
        with _as_mcp_errors():
            answer = await self.caller.read("search-collections", {})
        return types.ListResourcesResult(
            resources=[
                types.Resource(
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
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """List the URI templates."""
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=uri,
                    name=title.split()[-1],
                    title=title,
                    description=about,
                    mime_type=kind,
                )
                for uri, title, about, kind in _TEMPLATES
            ]
        )

    async def read(
        self, _ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return a resource.

        Raises:
            MCPError: if it does not exist, or the network does not answer.
        """
        with _as_mcp_errors():
            return types.ReadResourceResult(contents=[await self.content(params.uri)])

    async def content(self, uri: str) -> types.TextResourceContents:
        """Return collections and tools as JSON, sources and chunks as text.

        Raises:
            SearchError: if it does not exist, or the network does not answer.
            ToolError: likewise, as reported by a tool.
        """
        match = _URI.fullmatch(uri)
        if match is None:
            known = ", ".join(row[0] for row in _TEMPLATES)
            raise InvalidInput("uri", f"no resource {uri}; expected {known}")
        named = {name: unquote(part) for name, part in match.groupdict().items() if part}
        kind = _TEXT
        match named:
            case {"tool": tool}:
                row = tool_named(tool)
                if row is None:
                    raise NotFound("tool", tool, nearest=tuple(each.name for each in all_tools()))
                described = {
                    "name": row.name,
                    "description": row.description,
                    "inputSchema": row.input_schema,
                    "outputSchema": row.output_schema,
                }
                text, kind = _pretty(described), _JSON
            case {"collection": collection, "source": source}:
                text = await self._text(collection, source)
            case {"collection": collection, "chunk": chunk}:
                text = await self._chunk(collection, chunk)
            case _:
                text, kind = (
                    _pretty(await self.caller.read("search-collection-info", named)),
                    _JSON,
                )
        return types.TextResourceContents(uri=uri, mime_type=kind, text=text)

    async def _text(self, collection: str, source: str) -> str:
        """Return the chunks of a source in text order, separated by empty lines."""
        texts: dict[int, str] = {}
        place, total = 0, 1
        while place < total:
            # Its neighbours in the source come with it.
            near = await self._near(collection, f"{collection}:{source}:{place}", source=source)
            if near is None and not place:
                raise NotFound("source", source)
            texts[place] = near["sourceContent"] if near else ""  # replaced meanwhile
            for hit in near["results"] if near else ():
                texts[hit["chunkIndex"]] = hit["content"]
                total = min(hit["totalChunks"], _DEEPEST)
            while place in texts:
                place += 1
        return "\n\n".join(texts[place] for place in sorted(texts))

    async def _chunk(self, collection: str, chunk: str) -> str:
        """Return the text of a chunk."""
        near = await self._near(collection, chunk)
        if near is None:
            raise NotFound("chunk", chunk, hint="Use the chunkId of a search-query hit.")
        return str(near["sourceContent"])

    async def _near(
        self, collection: str, chunk: str, *, source: str | None = None
    ) -> dict[str, Any] | None:
        """Return the chunks of ``source`` nearest to a chunk; ``None`` if there is no such chunk.

        This needs no embedder.
        """
        asked: dict[str, Any] = {"collection": collection, "chunkId": chunk, "limit": 1}
        if source is not None:
            asked |= {"limit": _PAGE, "filter": {"source": source}}
        try:
            answer: dict[str, Any] = await self.caller.read("search-similar", asked)
        except ToolError as exc:
            if exc.code == "not_found" and str(exc).startswith("no chunk"):
                return None
            raise
        return answer


@dataclass(frozen=True, slots=True)
class Prompts:
    """The handlers of ``prompts/list`` and ``prompts/get``."""

    resources: Resources

    async def listing(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """List the prompts."""
        return types.ListPromptsResult(prompts=[_ANSWER, _EXPLORE])

    async def get(
        self, _ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return a prompt with its arguments filled in.

        Raises:
            MCPError: if the prompt or collection does not exist, or an argument is missing.
        """
        prompt = {each.name: each for each in (_ANSWER, _EXPLORE)}.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt {params.name!r}")
        given = params.arguments or {}
        for argument in prompt.arguments or ():
            if argument.required and not given.get(argument.name, "").strip():
                problem = f"{prompt.name}: the argument {argument.name} is missing"
                raise MCPError(types.INVALID_PARAMS, problem)
        collection = given.get("collection") or "*"
        contents: list[types.TextContent | types.EmbeddedResource]
        if prompt is _ANSWER:
            text = _ANSWER_TEXT.format(question=given["question"], collection=collection)
            contents = [types.TextContent(text=text)]
        else:
            with _as_mcp_errors():
                described = await self.resources.content(collection_uri(collection))
            contents = [
                types.EmbeddedResource(resource=described),
                types.TextContent(text=_EXPLORE_TEXT),
            ]
        messages = [types.PromptMessage(role="user", content=each) for each in contents]
        return types.GetPromptResult(description=prompt.description, messages=messages)


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


@contextmanager
def _as_mcp_errors() -> Iterator[None]:
    """Translate the failures of tools; those of the caller are errors in the parameters."""
    try:
        yield
    except (SearchError, ToolError) as exc:
        report = report_of(exc, "resource")
        callers = report.get("code") in ("not_found", "invalid_input")
        raise MCPError(
            types.INVALID_PARAMS if callers else types.INTERNAL_ERROR, failure_text(report)
        ) from exc
