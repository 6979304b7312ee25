"""The OpenAPI document, generated from the table of operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ability_search import __version__
from ability_search.extensions.cli.http_access import JSON
from ability_search.extensions.gateway.problems import MEDIA_TYPE, STATUSES, Problem

_SCHEMAS = "#/components/schemas/"
_REFUSALS = ("misdirected", "rate_limited")
_GUARDED_REFUSALS = ("unauthorized", "forbidden_origin", "busy")

Content = type[BaseModel] | str | None
"""Content of a response: a model for JSON, the media type of a text, or nothing."""

Handler = Callable[[Any, Request], Awaitable[Response]]
"""Answers a request, given an object with the state of the gateway."""

References = Mapping[Any, Mapping[str, Any]]
"""References to the schemas of the models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route of the gateway and its description.

    Attributes:
        path: Path of the route; names in braces are parameters.
        name: Unique name of the operation; by default the last part of the path.
        summary: Title.
        description: Further text.
        handler: Answers a request.
        body: Model of the JSON body; an operation with a body is a POST request, others are GET.
        parameters: JSON schemas of the parameters in the path and in the query string; ``None`` if
            the query string is ignored.
        responses: Description and content of the responses without a problem, by status.
        errors: Error codes of the problem responses, in addition to those of the guard.
        public: Whether the operation needs no token.
    """

    path: str
    name: str = ""
    summary: str
    description: str = ""
    handler: Handler
    body: type[BaseModel] | None = None
    parameters: Mapping[str, Mapping[str, Any]] | None = None
    responses: Mapping[int, tuple[str, Content]]
    errors: tuple[str, ...] = ()
    public: bool = False

    @property
    def id(self) -> str:
        """Return the name."""
        return self.name or self.path.rpartition("/")[2]

    @property
    def method(self) -> str:
        """Return the HTTP method."""
        return "GET" if self.body is None else "POST"

    @property
    def query(self) -> list[str]:
        """Return the names of the parameters in the query string."""
        return [name for name in self.parameters or () if f"{{{name}}}" not in self.path]


def document(operations: Iterable[Operation], *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the gateway.

    Args:
        operations: The operations, in the order of the document.
        secured: Whether the gateway requires a bearer token.
    """
    operations = tuple(operations)
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Problem, "serialization")]
    for item in operations:
        if item.body is not None:
            models.append((item.body, "validation"))
        contents = [content for _, content in item.responses.values()]
        models += [(each, "serialization") for each in contents if isinstance(each, type)]
    schemas, definitions = models_json_schema(
        models, by_alias=True, ref_template=f"{_SCHEMAS}{{model}}"
    )
    references: References = {model: schema for (model, _), schema in schemas.items()}
    paths: dict[str, dict[str, Any]] = {}
    for item in operations:
        paths.setdefault(item.path, {})[item.method.lower()] = _described(item, references, secured)
    components = {"schemas": definitions["$defs"]}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "ability-search",
            "version": __version__,
            "description": "The tools of ability-search over HTTP.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": components,
    }
    if secured:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"bearer": []}]
    return found


def _described(item: Operation, references: References, secured: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": item.id, "summary": item.summary}
    if item.description:
        described["description"] = item.description
    if item.parameters:
        described["parameters"] = [
            _parameter(name, schema, in_path=name not in item.query)
            for name, schema in item.parameters.items()
        ]
    if item.body is not None:
        example = {"first": {"value": _example(item.body.model_json_schema(by_alias=True))}}
        described["requestBody"] = {
            "required": any(field.is_required() for field in item.body.model_fields.values()),
            "content": {JSON: {"schema": references[item.body], "examples": example}},
        }
    described["responses"] = _responses(item, references)
    if secured and item.public:
        described["security"] = []
    return described


def _responses(item: Operation, references: References) -> dict[str, Any]:
    """Return the responses by status: first those without a problem, then problems ascending."""
    responses: dict[str, dict[str, Any]] = {}
    for status, (description, content) in item.responses.items():
        responses[str(status)] = {"description": description}
        if isinstance(content, str):
            responses[str(status)]["content"] = {content: {"schema": {"type": "string"}}}
        elif content is not None:
            responses[str(status)]["content"] = {JSON: {"schema": references[content]}}
    by_status: dict[int, list[str]] = {}
    for code in (*item.errors, *_REFUSALS, *(() if item.public else _GUARDED_REFUSALS)):
        by_status.setdefault(STATUSES[code], []).append(f"`{code}`")
    for status, codes in sorted(by_status.items()):
        response = responses.setdefault(str(status), {"description": ", ".join(codes)})
        response.setdefault("content", {})[MEDIA_TYPE] = {"schema": references[Problem]}
    return responses


def _parameter(name: str, schema: Mapping[str, Any], *, in_path: bool) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in ("title", "anyOf", "default")}
    return {
        "name": name,
        "in": "path" if in_path else "query",
        "required": in_path,
        "description": kept.pop("description", ""),
        "schema": kept,
    }


def _example(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """Return an example of an object with its required fields."""
    if schema.get("examples"):
        return schema["examples"][0]
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    example = {}
    for name in schema.get("required", ()):
        field = schema["properties"][name]
        if field.get("examples"):
            example[name] = field["examples"][0]
        elif field.get("type") == "array":
            item = definitions[field["items"]["$ref"].rpartition("/")[2]]
            example[name] = [_example(item, definitions)]
    return example
