"""The OpenAPI document, generated from the table of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from ability_search import __version__
from ability_search.http import event_stream, gateway_metrics, problems
from ability_search.http.shortcuts import IngestInput, SearchInput
from ability_search.tools.table import BY_NAME, TOOLS, ToolRow

JSON = "application/json"
_SCHEMAS = "#/components/schemas/"
_REFUSALS = ("unauthorized", "forbidden_origin", "misdirected", "rate_limited", "busy")
_CALLS = (
    *("invalid_input", "forbidden_path", "not_found", "model_mismatch", "too_large"),
    *("unsupported_media_type", "internal", "timeout"),
)
Schemas = Mapping[Any, Mapping[str, Any]]


@cache
def document(*, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the gateway.

    Args:
        secured: Whether the gateway requires a bearer token.
    """
    schemas, definitions = _schemas()
    paths: dict[str, Any] = {
        f"/tools/{row.name}": {"post": _tool(row, row.params, schemas)} for row in TOOLS
    }
    paths |= _shortcuts(schemas) | _states() | _streams()
    components: dict[str, Any] = {
        "schemas": {**definitions["$defs"], "Problem": _PROBLEM, "Health": _HEALTH}
    }
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
        for path in ("/health", "/ready", "/openapi.json"):
            paths[path]["get"]["security"] = []
    return found


def _schemas() -> tuple[Schemas, Mapping[str, Any]]:
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (IngestInput, "validation"),
        (SearchInput, "validation"),
    ]
    for row in TOOLS:
        models += [(row.params, "validation"), (row.result, "serialization")]
    return models_json_schema(models, by_alias=True, ref_template=f"{_SCHEMAS}{{model}}")


def _tool(row: ToolRow, params: type[BaseModel], schemas: Schemas) -> dict[str, Any]:
    required = any(field.is_required() for field in params.model_fields.values())
    return {
        "operationId": row.name,
        "summary": row.title,
        "description": row.description,
        "requestBody": {
            "required": required,
            "content": {
                JSON: {
                    "schema": schemas[params, "validation"],
                    "examples": {"first": {"value": _example(params)}},
                }
            },
        },
        "responses": {
            "200": _json("The result of the tool.", schemas[row.result, "serialization"]),
            **_problems(*_CALLS, *_REFUSALS),
        },
    }


def _example(params: type[BaseModel]) -> dict[str, Any]:
    """Return an example with the required fields."""
    schema = params.model_json_schema(by_alias=True)
    return _filled(schema, schema.get("$defs", {}))


def _filled(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    example = {}
    for name in schema.get("required", ()):
        field = schema["properties"][name]
        if field.get("examples"):
            example[name] = field["examples"][0]
        elif field.get("type") == "array":
            item = definitions[field["items"]["$ref"].rpartition("/")[2]]
            example[name] = [_filled(item, definitions)]
    return example


def _shortcuts(schemas: Schemas) -> dict[str, Any]:
    ingest = _tool(BY_NAME["search-index"], IngestInput, schemas)
    search = _tool(BY_NAME["search-query"], SearchInput, schemas)
    listing, info = BY_NAME["search-collections"], BY_NAME["search-collection-info"]
    fields = info.params.model_json_schema(by_alias=True)["properties"]
    return {
        "/ingest": {
            "post": ingest
            | {
                "operationId": "ingest",
                "summary": "Index a text",
                "description": "Index one text in the collection `tag`.",
            }
        },
        "/search": {
            "post": search
            | {
                "operationId": "search",
                "description": "Same as `search-query`; the default is to search all collections.",
            }
        },
        "/collections": {"get": _listed(listing, schemas, "collections", ())},
        "/collections/{name}": {
            "get": _listed(
                info,
                schemas,
                "collection",
                (
                    _parameter("name", "path", fields["collection"]),
                    _parameter("limit", "query", fields["limit"]),
                    _parameter("cursor", "query", {**fields["cursor"], "type": "string"}),
                ),
            )
        },
    }


def _listed(
    row: ToolRow, schemas: Schemas, operation: str, parameters: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": row.title,
        "description": row.summary,
        "parameters": list(parameters),
        "responses": {
            "200": _json("The result of the tool.", schemas[row.result, "serialization"]),
            **_problems("invalid_input", "not_found", "internal", "timeout", *_REFUSALS),
        },
    }


def _parameter(name: str, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in ("title", "anyOf", "default")}
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": kept.pop("description", ""),
        "schema": kept,
    }


def _states() -> dict[str, Any]:
    health = {"$ref": f"{_SCHEMAS}Health"}
    missing = _json("A component is missing, or the gateway is busy.", health)
    missing["content"] |= _PROBLEM_CONTENT
    return {
        "/health": {
            "get": {
                "operationId": "health",
                "summary": "State of each component",
                "responses": {
                    "200": _json("All components are up.", health),
                    "503": missing,
                    **_problems("misdirected", "rate_limited"),
                },
            }
        },
        "/ready": {
            "get": {
                "operationId": "ready",
                "summary": "Whether the gateway can serve calls",
                "responses": {
                    "204": {"description": "It can."},
                    **_problems("unavailable", "misdirected", "rate_limited"),
                },
            }
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Metrics of the gateway, for Prometheus",
                "responses": {
                    "200": {
                        "description": "Prometheus text format.",
                        "content": {gateway_metrics.MEDIA_TYPE: {"schema": {"type": "string"}}},
                    },
                    **_problems(*_REFUSALS),
                },
            }
        },
        "/network": {
            "get": {
                "operationId": "network",
                "summary": "Tools on the network and their providers",
                "responses": {
                    "200": _json("The tools visible to this gateway.", _NETWORK),
                    **_problems("unavailable", *_REFUSALS),
                },
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document",
                "responses": {
                    "200": _json("OpenAPI 3.1.", {"type": "object"}),
                    **_problems("misdirected", "rate_limited"),
                },
            }
        },
    }


def _streams() -> dict[str, Any]:
    job = {"type": "string", "description": "Only events of this job; the stream ends with it."}
    collection = {"type": "string", "description": "Only events of this collection."}
    return {
        "/events": {
            "get": {
                "operationId": "events",
                "summary": "Live progress of indexing",
                "description": "Events `progress` {jobId, collection, done, total, stage},"
                " `completed` {jobId, collection} and `failed` {jobId, collection, code, error}.",
                "parameters": [
                    _parameter("jobId", "query", job),
                    _parameter("collection", "query", collection),
                ],
                "responses": {
                    "200": {
                        "description": "Server-sent events, until the client disconnects.",
                        "content": {event_stream.MEDIA_TYPE: {"schema": {"type": "string"}}},
                    },
                    **_problems("invalid_input", "unavailable", *_REFUSALS),
                },
            }
        }
    }


def _json(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _problems(*codes: str) -> dict[str, Any]:
    """Return the responses for some error codes, grouped by status in ascending order."""
    described: dict[int, list[str]] = {}
    for code in codes:
        described.setdefault(problems.STATUSES[code], []).append(f"`{code}`")
    return {
        str(status): {
            "description": ", ".join(dict.fromkeys(names)),
            "content": _PROBLEM_CONTENT,
        }
        for status, names in sorted(described.items())
    }


_PROBLEM_CONTENT = {problems.MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}}
_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "description": "A failure, as in RFC 9457.",
    "required": ["type", "title", "status", "detail", "code", "hint", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What went wrong."},
        "code": {"type": "string", "enum": sorted(problems.STATUSES)},
        "hint": {"type": "string", "description": "How to resolve it."},
        "retryable": {"type": "boolean", "description": "Whether a retry may succeed."},
        "retryAfterMs": {"type": "integer"},
        "tool": {"type": "string"},
        "collection": {"type": "string"},
    },
}
_HEALTH: Mapping[str, Any] = {
    "type": "object",
    "description": "The state of each component.",
    "required": ["status", "parts"],
    "properties": {
        "status": {"type": "string", "enum": ["up", "down"]},
        "parts": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["state"],
                "properties": {
                    "state": {"type": "string", "enum": ["up", "down"]},
                    "providers": {"type": "integer", "description": "Number of providers."},
                    "missing": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
_NETWORK: Mapping[str, Any] = {
    "type": "object",
    "required": ["tools"],
    "properties": {
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "description", "providers"],
                "properties": {
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    "providers": {
                        "type": "array",
                        "description": "Providers; empty if the broker does not list them.",
                        "items": {
                            "type": "object",
                            "properties": {
                                "agentId": {"type": "string"},
                                "name": {"type": "string"},
                            },
                        },
                    },
                },
            },
        }
    },
}
