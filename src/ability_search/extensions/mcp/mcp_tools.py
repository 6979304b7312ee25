"""The tools over MCP: listed from the table of tools, called over the network.

The full profile lists them as they are. The lean one costs a model's context little: short schemas,
hits as references, and one more tool, which reads what a reference names.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import Field

from ability_search.client.tool_client import progress_of
from ability_search.errors import InvalidInput
from ability_search.extensions.answers.answerer import Answerer, AskInput
from ability_search.extensions.cli.tool_calls import Caller, broker_unavailable, report_of
from ability_search.extensions.gateway.settings import McpProfile
from ability_search.extensions.mcp.resources import TOOL, Resources, chunk_uri, failure_text
from ability_search.tools.table import tool_named
from ability_search.tools.tool_row import ToolRow
from ability_search.wire import Count, Input, NonBlank
from kadi_client import KadiError, ToolError
from kadi_client.messages import decode, encode

_OPTIONS = "options"
_FIELD_END = re.compile(r"[.:]")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "search-query": {"highlights": True},  # where the snippet of a reference begins
    "search-collection-info": {"limit": 100},
}
_USAGE: Mapping[str, str] = {
    "search-query": " Hits are references with a snippet and a uri, for search-read; with"
    " maxResultTokens or expand they have their texts."
}
_WITH_TEXTS = frozenset({"maxResultTokens", "expand"})
"""Parameters that make search-query return texts."""
_REFERENCE = (
    *("chunkId", "collection", "title", "score", "of", "breadcrumb", "page", "startLine"),
)
_SNIPPET = 200
"""Characters of a snippet."""
_BEFORE = 60
"""Characters of a snippet before the first match."""
_NAMES = {"integer": "int", "number": "number", "string": "string", "boolean": "bool"}


@cache
def lean_schema(row: ToolRow) -> Mapping[str, Any]:
    """Return the short schema of a tool's input; ``options`` names all other parameters."""
    whole = row.input_schema
    definitions = whole.get("$defs", {})
    defaults = _DEFAULTS.get(row.name, {})
    properties: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, field in whole.get("properties", {}).items():
        if row.lean is None or name in row.lean:
            properties[name] = _plain(field, definitions)
            if name in defaults:
                properties[name]["default"] = defaults[name]
        else:
            rest[name] = field
    if rest:
        members, uri = _members(rest, (), definitions), TOOL.format(tool=row.name)
        text = f"{members}. search-read {uri} describes them."
        properties[_OPTIONS] = {"type": "object", "description": text}
    required = whole.get("required", [])
    return {"type": "object", "properties": properties, "required": required}


def full_input(row: ToolRow, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of a tool for a call in the lean profile.

    Raises:
        InvalidInput: if ``options`` is not an object, or repeats a parameter.
    """
    given = dict(arguments)
    options = given.pop(_OPTIONS, None)
    if options is not None and not isinstance(options, dict):
        raise InvalidInput(_OPTIONS, "expected an object, such as {}; it is not a text")
    for name in options or ():
        if name in given:
            raise InvalidInput(f"{_OPTIONS}.{name}", "is also a parameter of the call; set one")
    return {**_DEFAULTS.get(row.name, {}), **given, **(options or {})}


def lean_error(error: str, options: Any) -> str:
    """Return the text of an error that names the members of ``options`` where they were given."""
    if not isinstance(options, dict):
        return error
    return "; ".join(
        f"{_OPTIONS}.{part}" if _FIELD_END.split(part, 1)[0] in options else part
        for part in error.split("; ")
    )


def lean_result(tool_input: Mapping[str, Any], result: Any) -> Any:
    """Return a result with references in place of hits, unless the call asks for their texts."""
    texts = any(tool_input.get(name) is not None for name in _WITH_TEXTS)
    default = tool_input.get("collection")
    if "results" not in result or texts or default is None:
        return result
    lean = {name: value for name, value in result.items() if name not in ("query", "timings")}
    lean["results"] = [_reference(hit, default) for hit in result["results"]]
    return lean


def lean_question(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the short schema of a question: the question, the collection and a filter."""
    properties = {
        name: _plain(schema["properties"][name], schema.get("$defs", {}))
        for name in ("query", "collection", "filter")
    }
    return {"type": "object", "properties": properties, "required": schema["required"]}


def lean_answer(collection: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with references to its passages; with their texts if it has no answer.

    Sentences are listed only if they are not fully supported.
    """
    lean = {name: value for name, value in result.items() if name not in ("sentences", "timings")}
    doubtful = [each for each in result["sentences"] if each["support"] != "full"]
    if doubtful:
        lean["doubtful"] = doubtful
    if result["outcome"] != "passages":
        lean["passages"] = [_reference(hit, collection) for hit in result["passages"]]
    return lean


def _reference(hit: Mapping[str, Any], collection: Any) -> dict[str, Any]:
    """Return what identifies a hit, and a snippet around its first match."""
    text = hit["content"]
    marks = hit.get("highlights") or ({"start": 0},)
    start = max(0, min(mark["start"] for mark in marks) - _BEFORE)
    start = 0 if start + _BEFORE < _SNIPPET else start
    end = start + _SNIPPET
    snippet = " ".join(text[start:end].split())
    kept = {name: hit[name] for name in _REFERENCE if hit.get(name) is not None}
    return {
        "source": hit["source"],
        **kept,
        "snippet": f"{'…' if start else ''}{snippet}{'…' if end < len(text) else ''}",
        "uri": chunk_uri(hit.get("collection") or collection, hit["chunkId"]),
        **({"explain": hit["explain"]} if hit.get("explain") else {}),
    }


def _plain(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter without titles, examples, references and null."""
    kept = {
        name: value
        for name, value in field.items()
        if name in ("type", "description", "enum", "default") and value is not None
    }
    text, members = kept.get("description", ""), field.get("items", {}).get("$ref")
    if "type" not in kept:
        kinds = [each["type"] for each in field.get("anyOf", ()) if each.get("type") != "null"]
        kept["type"] = kinds[0] if len(kinds) == 1 else kinds
    if members:
        definition = definitions[members.rpartition("/")[2]]
        required = definition.get("required", [])
        form = _members(definition["properties"], required, definitions)
        kept["items"] = {"type": "object", "required": required}
        kept["description"] = f"{text} Each: {form}".strip()
    elif "array" in kept["type"]:
        kept["items"] = {"type": "string"}
    return kept


def _members(fields: Mapping[str, Any], required: Any, definitions: Mapping[str, Any]) -> str:
    """Return an object type in the notation of TypeScript."""
    named = [
        f"{name}{'' if name in required else '?'}: {_form(field, definitions)}"
        for name, field in fields.items()
    ]
    return f"{{{', '.join(named)}}}"


def _form(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the type of a value in the notation of TypeScript."""
    if "$ref" in field:
        return _form(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "enum" in field:
        return "|".join(map(json.dumps, field["enum"]))
    for several in ("anyOf", "oneOf"):
        if several in field:
            forms = [_form(each, definitions) for each in field[several]]
            return "|".join(dict.fromkeys(form for form in forms if form != "null"))
    kind = str(field.get("type", "any"))
    if kind == "array":
        form = _form(field.get("items", {}), definitions)
        return f"({form})[]" if "|" in form else f"{form}[]"
    if kind == "object" and "properties" in field:
        return _members(field["properties"], field.get("required", ()), definitions)
    return _NAMES.get(kind, kind)


Context = ServerRequestContext[Any, Any]

_READ_CHARACTERS = 20_000
"""Maximum length of the text that search-read returns at once."""


class ReadInput(Input):
    """Input of search-read."""

    uri: NonBlank = Field(
        description="uri of a hit; search://collection/NAME/source/SOURCE for the whole text of a"
        " source (percent-encoded); search://tool/NAME for the full schema of a tool."
    )
    offset: Count = Field(0, ge=0, description="Number of characters to skip.")


READ = types.Tool(
    name="search-read",
    title="Read",
    description="Read the text of a hit or of a source, or the full description of a tool.",
    input_schema=ReadInput.model_json_schema(),
    annotations=types.ToolAnnotations(title="Read", read_only_hint=True, open_world_hint=False),
)


ASK = types.Tool(
    name="search-ask",
    title="Ask",
    description="Answer a question from indexed texts, with citations that are checked. Without a"
    " language model it returns the best passages.",
    input_schema=lean_question(AskInput.model_json_schema(by_alias=True)),
    annotations=types.ToolAnnotations(title="Ask", read_only_hint=True, open_world_hint=False),
)


class Tools:
    """The handlers of ``tools/list`` and ``tools/call``.

    Args:
        caller: Calls the tools.
        answerer: Answers questions.
        resources: Reads what references name.
        profile: How the tools are listed.
        rows: The tools that are listed; all can be called.
    """

    def __init__(
        self,
        caller: Caller,
        answerer: Answerer,
        resources: Resources,
        profile: McpProfile,
        rows: Sequence[ToolRow],
    ) -> None:
        self._caller = caller
        self._answerer = answerer
        self._resources = resources
        self._lean = profile == "lean"
        tools = [_described(row, lean=self._lean) for row in rows]
        self._listed = types.ListToolsResult(tools=[*tools, ASK, READ] if self._lean else tools)

    async def listing(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List all tools."""
        return self._listed

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool; a failure is returned as an error result with the hint.

        Raises:
            MCPError: if the tool does not exist.
        """
        row = tool_named(params.name)
        arguments = dict(params.arguments or {})
        try:
            if row is not None:
                return await self._call(ctx, row, arguments)
            if self._lean and params.name == READ.name:
                return types.CallToolResult(content=[await self._read(arguments)])
            if self._lean and params.name == ASK.name:
                asked = AskInput.model_validate(arguments)
                found = await self._answerer.answer(asked)
                answer = found.model_dump(mode="json", by_alias=True, exclude_none=True)
                return _answered(encode(lean_answer(asked.collection, answer)))
        except Exception as exc:  # noqa: BLE001 - the boundary, see report_of()
            report = dict(report_of(exc, params.name))
            if self._lean:
                report["error"] = lean_error(str(report.get("error")), arguments.get("options"))
            text = failure_text(report)
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        names = ", ".join(tool.name for tool in self._listed.tools)
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}; tools: {names}")

    async def _call(
        self, ctx: Context, row: ToolRow, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        if self._lean:
            arguments = full_input(row, arguments)
        answer = bytes(await self._answer(ctx, row, arguments))
        if self._lean:
            answer = encode(lean_result(arguments, decode(answer)))
        return _answered(answer)

    async def _read(self, arguments: dict[str, Any]) -> types.TextContent:
        value = ReadInput.model_validate(arguments)
        text = (await self._resources.content(value.uri)).text
        end = value.offset + _READ_CHARACTERS
        more = f"\n\n[{len(text) - end} characters follow: offset {end}]" if end < len(text) else ""
        return types.TextContent(text=text[value.offset : end] + more)

    async def _answer(self, ctx: Context, row: ToolRow, arguments: dict[str, Any]) -> Any:
        meta = (ctx.params or {}).get("_meta")
        wants_progress = isinstance(meta, Mapping) and "progressToken" in meta
        if not (row.reports_progress and wants_progress):
            return await self._caller.call(row.name, arguments)
        job = arguments.setdefault("jobId", secrets.token_hex(8))
        async with self._reporting(ctx, str(job)):
            return await self._caller.call(row.name, arguments)

    @asynccontextmanager
    async def _reporting(self, ctx: Context, job: str) -> AsyncIterator[None]:
        """Forward the progress of a job to the client during the block."""
        reported = -1

        async def report(done: int, total: int, stage: str) -> None:
            nonlocal reported
            if done > reported:  # MCP requires that progress increases
                reported = done
                await ctx.session.report_progress(done, total, stage)

        connection = await self._caller.live.connection()
        try:
            async with progress_of(connection, job, report):
                yield
        except ToolError:
            raise
        except KadiError as exc:
            raise broker_unavailable(exc) from exc


def _described(row: ToolRow, *, lean: bool) -> types.Tool:
    return types.Tool(
        name=row.name,
        title=row.title,
        description=row.description + (_USAGE.get(row.name, "") if lean else ""),
        input_schema=dict(lean_schema(row) if lean else row.input_schema),
        output_schema=None if lean else dict(row.output_schema),
        annotations=types.ToolAnnotations(
            title=row.title,
            read_only_hint=row.read_only,
            destructive_hint=row.destructive,
            idempotent_hint=row.idempotent,
            open_world_hint=False,
        ),
    )


def _answered(answer: bytes) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=answer.decode())], structured_content=decode(answer)
    )
