"""GET /collections/{name}/graph of the gateway: the last analysis of a collection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ability_search.config.schema import Settings
from ability_search.errors import NotFound
from ability_search.extensions.cli.http_access import JSON
from ability_search.extensions.cli.tool_calls import Caller
from ability_search.extensions.gateway.gateway import AddedRoutes
from ability_search.extensions.gateway.openapi import Operation
from ability_search.extensions.gateway.operations import READ_ERRORS
from ability_search.extensions.gateway.request_bodies import while_connected
from ability_search.extensions.notes.graph_analysis import GraphAnalysis
from ability_search.tools.table import BY_NAME


async def _analysis(caller: Caller, request: Request) -> Response:
    name = request.path_params["name"]
    asked = {"collection": name, "include": ["graph"]}
    found = await while_connected(request, caller.read("notes-overview", asked))
    if found.get("graph") is None:
        raise NotFound("analysis", name, hint="Call notes-analyze.")
    return Response(msgspec.json.encode(found["graph"]), media_type=JSON)


OPERATIONS = (
    Operation(
        path="/collections/{name}/graph",
        name="collectionGraph",
        summary="Analysis of a collection's graph",
        description="The last analysis, made by `notes-analyze`.",
        handler=_analysis,
        parameters={
            "name": BY_NAME["search-collection-info"].input_schema["properties"]["collection"]
        },
        responses={200: ("The analysis.", GraphAnalysis)},
        errors=(*READ_ERRORS, "not_offered"),
    ),
)


@asynccontextmanager
async def open_routes(_settings: Settings, caller: Caller) -> AsyncIterator[AddedRoutes]:
    """Yield the route."""
    yield AddedRoutes(operations=OPERATIONS, state=caller)
