"""The operations of the gateway: their handlers and the table that describes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from importlib import import_module
from itertools import chain
from typing import Any

import msgspec
from pydantic import BaseModel, RootModel
from starlette.requests import Request
from starlette.responses import Response

from ability_search.errors import InvalidInput
from ability_search.extension import loaded
from ability_search.extensions.cli.http_access import JSON
from ability_search.extensions.cli.prometheus_meter import CONTENT_TYPE, MEDIA_TYPE, PrometheusMeter
from ability_search.extensions.cli.tool_calls import Caller, Observe, Unavailable
from ability_search.extensions.gateway import event_stream, request_bodies
from ability_search.extensions.gateway.middleware import GATEWAY_CALL_SECONDS, GATEWAY_CALLS
from ability_search.extensions.gateway.network_state import (
    ComponentHealth,
    Health,
    Network,
    NetworkTools,
    network_tools,
)
from ability_search.extensions.gateway.openapi import Handler, Operation, document
from ability_search.extensions.gateway.settings import Gateway
from ability_search.ops.metrics.meter import Meter
from ability_search.tools.table import BY_NAME, all_tools
from ability_search.tools.tool_row import ToolRow

_NUMBER = re.compile(r"[0-9]{1,9}")


class OpenApi(RootModel[dict[str, Any]]):
    """An OpenAPI document."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of the operations and what they use.

    ``read_file`` reads uploaded files; ``max_values`` limits the values in a body.
    """

    caller: Caller
    settings: Gateway
    meter: PrometheusMeter
    network: Network
    streams: event_stream.Streams
    read_file: request_bodies.ReadFile
    max_values: int

    async def files(self, request: Request) -> Response:
        """POST /files."""
        work = self._indexed(await request_bodies.read_json(request, self.max_values))
        return Response(
            msgspec.json.encode(await request_bodies.while_connected(request, work)),
            media_type=JSON,
        )

    async def _indexed(self, body: bytes) -> dict[str, Any]:
        tool_input, failed = await request_bodies.uploaded(body, self.read_file)
        result = await self.caller.read(request_bodies.INGEST, tool_input)
        return {**result, "failed": [*failed, *result["failed"]]}

    async def collections(self, request: Request) -> Response:
        """GET /collections."""
        return await self.call(request, "search-collections", {})

    async def collection(self, request: Request) -> Response:
        """GET /collections/{name}."""
        tool_input: dict[str, Any] = dict(request.query_params)
        tool_input["collection"] = request.path_params["name"]
        if "limit" in tool_input:
            tool_input["limit"] = _number("limit", tool_input["limit"])
        return await self.call(request, "search-collection-info", tool_input)

    async def health(self, _request: Request) -> Response:
        """GET /health."""
        parts = {"broker": ComponentHealth(state="up")}
        try:
            parts |= await self.network.states()
        except Unavailable:
            parts = {"broker": ComponentHealth(state="down")}
        down = any(part.state == "down" for part in parts.values())
        return _json(
            Health(status="down" if down else "up", parts=parts),
            status=HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.OK,
        )

    async def ready(self, _request: Request) -> Response:
        """GET /ready."""
        missing = (await self.network.states())["worker"].missing
        if missing:
            problem = f"no worker is connected: the broker lists no {', '.join(missing)}"
            raise Unavailable(problem, retry_after=1.0)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def tools(self, _request: Request) -> Response:
        """GET /network."""
        return _json(network_tools(await self.network.tools()))

    async def events(self, request: Request) -> Response:
        """GET /events."""
        if request.method == "HEAD":
            return Response(headers=event_stream.HEADERS, media_type=event_stream.MEDIA_TYPE)
        query = request.query_params
        frames = self.streams.frames(query.get("jobId"), query.get("collection"))
        # Before the response begins, so that a failure has its status.
        return event_stream.streamed(await anext(frames), frames)

    async def numbers(self, _request: Request) -> Response:
        """GET /metrics."""
        return Response(self.meter.text(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _request: Request) -> Response:
        """GET /openapi.json."""
        described = openapi_document(secured=self.settings.token is not None)
        return Response(msgspec.json.encode(described), media_type=JSON)

    async def call(self, request: Request, tool: str, tool_input: Mapping[str, Any]) -> Response:
        """Call a tool and return its result; disconnecting cancels the call."""
        answer = await request_bodies.while_connected(request, self.caller.call(tool, tool_input))
        return Response(bytes(answer), media_type=JSON)


def _calling(tool: str, translate: Callable[[request_bodies.Fields], Mapping[str, Any]]) -> Handler:
    """Return the handler that calls a tool with its translation of the body."""

    async def handle(handlers: Handlers, request: Request) -> Response:
        fields = request_bodies.fields_of(
            await request_bodies.read_json(request, handlers.max_values)
        )
        return await handlers.call(request, tool, translate(fields))

    return handle


def _tool(row: ToolRow) -> Operation:
    return Operation(
        path=f"/tools/{row.name}",
        summary=row.title,
        description=row.description,
        handler=_calling(row.name, dict),
        body=row.params,
        parameters={},
        responses={200: (_RESULT, row.result)},
        errors=CALL_ERRORS if row.name in BY_NAME else (*CALL_ERRORS, "not_offered"),
    )


_RESULT = "The result of the tool."
READ_ERRORS = ("invalid_input", "not_found", "internal", "timeout")
CALL_ERRORS = (
    *("invalid_input", "forbidden_path", "not_found", "model_mismatch", "too_large"),
    *("unsupported_media_type", "internal", "timeout"),
)
_LIST, _INFO = BY_NAME["search-collections"], BY_NAME["search-collection-info"]
_INFO_FIELDS = _INFO.input_schema["properties"]

_OPERATIONS: tuple[Operation, ...] = (
    replace(
        _tool(BY_NAME[request_bodies.INGEST]),
        path="/ingest",
        summary="Index a text",
        description="Index one text in the collection `tag`.",
        handler=_calling(request_bodies.INGEST, request_bodies.ingested),
        body=request_bodies.IngestInput,
    ),
    replace(
        _tool(BY_NAME[request_bodies.INGEST]),
        path="/files",
        summary="Index files",
        description="Index files that are sent with the request. A file that cannot be read or is"
        " empty is listed in `failed`, and an empty one is deleted from the collection; if none can"
        " be read, the request fails.",
        handler=Handlers.files,
        body=request_bodies.FilesInput,
    ),
    replace(
        _tool(BY_NAME[request_bodies.SEARCH]),
        path="/search",
        description="Same as `search-query`; the default is to search all collections.",
        handler=_calling(request_bodies.SEARCH, request_bodies.searched),
        body=request_bodies.SearchInput,
    ),
    replace(
        _tool(BY_NAME[request_bodies.SEARCH]),
        path="/graph-search",
        name="graphSearch",
        description="Same as `search` with graph expansion over `hops` links.",
        handler=_calling(request_bodies.SEARCH, request_bodies.graph_searched),
        body=request_bodies.GraphSearchInput,
    ),
    Operation(
        path="/collections",
        summary=_LIST.title,
        description=_LIST.summary,
        handler=Handlers.collections,
        parameters={},
        responses={200: (_RESULT, _LIST.result)},
        errors=READ_ERRORS,
    ),
    Operation(
        path="/collections/{name}",
        name="collection",
        summary=_INFO.title,
        description=_INFO.summary,
        handler=Handlers.collection,
        parameters={
            "name": _INFO_FIELDS["collection"],
            "limit": _INFO_FIELDS["limit"],
            "cursor": {**_INFO_FIELDS["cursor"], "type": "string"},
        },
        responses={200: (_RESULT, _INFO.result)},
        errors=READ_ERRORS,
    ),
    Operation(
        path="/health",
        summary="State of each component",
        handler=Handlers.health,
        responses={
            200: ("All components are up.", Health),
            503: ("A component is missing, or the gateway is busy.", Health),
        },
        errors=("busy",),
        public=True,
    ),
    Operation(
        path="/ready",
        summary="Whether the gateway can serve calls",
        handler=Handlers.ready,
        responses={204: ("It can.", None)},
        errors=("unavailable",),
        public=True,
    ),
    Operation(
        path="/metrics",
        summary="Metrics of the gateway, for Prometheus",
        handler=Handlers.numbers,
        responses={200: ("Prometheus text format.", MEDIA_TYPE)},
    ),
    Operation(
        path="/network",
        summary="Tools on the network and their providers",
        handler=Handlers.tools,
        responses={200: ("The tools visible to this gateway.", NetworkTools)},
        errors=("unavailable",),
    ),
    Operation(
        path="/openapi.json",
        name="openapi",
        summary="This document",
        handler=Handlers.openapi,
        responses={200: ("OpenAPI 3.1.", OpenApi)},
        public=True,
    ),
    Operation(
        path="/events",
        summary="Live progress of indexing",
        description="Events `progress` {jobId, collection, done, total, stage},"
        " `completed` {jobId, collection} and `failed` {jobId, collection, code, error}.",
        handler=Handlers.events,
        parameters={
            "jobId": {
                "type": "string",
                "description": "Only events of this job; the stream ends with it.",
            },
            "collection": {"type": "string", "description": "Only events of this collection."},
        },
        responses={
            200: ("Server-sent events, until the client disconnects.", event_stream.MEDIA_TYPE)
        },
        errors=("invalid_input", "unavailable"),
    ),
)
"""The operations besides those that call a tool, in the order of the OpenAPI document."""


def operations() -> tuple[Operation, ...]:
    """Return the operations of the gateway and of extensions, in the order of the document."""
    added = (import_module(name).OPERATIONS for name in loaded().routes)
    return (*map(_tool, all_tools()), *_OPERATIONS, *chain.from_iterable(added))


def call_observer(meter: Meter) -> Observe:
    """Return a callback that records tool calls."""

    def observe(tool: str, code: str, seconds: float) -> None:
        meter.add(GATEWAY_CALLS, 1, tool, code)
        meter.observe(GATEWAY_CALL_SECONDS, seconds, tool)

    return observe


@cache
def openapi_document(*, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI document of the gateway; ``secured`` if it requires a token."""
    return document(operations(), secured=secured)


def _number(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(field, "expected a whole number of at most 9 digits")
    return int(text)


def _json(value: BaseModel, *, status: int = HTTPStatus.OK) -> Response:
    body = value.model_dump_json(by_alias=True, exclude_none=True)
    return Response(body, status_code=status, media_type=JSON)
