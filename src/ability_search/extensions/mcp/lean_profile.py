"""The lean profile: tools with few parameters, and hits as references without their texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ability_search.errors import InvalidInput
from ability_search.extensions.mcp.resources import chunk_uri, tool_uri
from ability_search.tools.tool_row import ToolRow

_OPTIONS = "options"
_FIELD_END = re.compile(r"[.:]")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "search-query": {"highlights": True},  # where the snippet of a reference begins
    "search-collection-info": {"limit": 100},
}
_USAGE: Mapping[str, str] = {
    "search-query": " Hits are references with a snippet and a uri, for search-read; with"
    " maxResultTokens or expand they have their texts.",
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


def lean_description(row: ToolRow) -> str:
    """Return the description of a tool, and of its results in this profile."""
    return row.description + _USAGE.get(row.name, "")


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
        text = (
            f"{_members(rest, (), definitions)}. search-read {tool_uri(row.name)} describes them."
        )
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
