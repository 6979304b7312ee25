"""POST /ask of the gateway: an answer as one value, or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ability_search.config.schema import Settings
from ability_search.extensions.answers.answerer import (
    EVENTS,
    Answerer,
    AskInput,
    AskResult,
    open_answerer,
)
from ability_search.extensions.cli.http_access import JSON
from ability_search.extensions.cli.tool_calls import Caller
from ability_search.extensions.gateway import event_stream
from ability_search.extensions.gateway.gateway import AddedRoutes
from ability_search.extensions.gateway.openapi import Operation
from ability_search.extensions.gateway.operations import CALL_ERRORS
from ability_search.extensions.gateway.request_bodies import (
    fields_of,
    read_json,
    searched,
    while_connected,
)
from ability_search.wire import Result
from kadi_client.messages import encode


@dataclass(frozen=True, slots=True)
class Asking:
    """The state of the route; ``max_values`` limits the values in a body."""

    answerer: Answerer
    max_values: int

    async def ask(self, request: Request) -> Response:
        """POST /ask."""
        fields = searched(fields_of(await read_json(request, self.max_values)))
        asked = AskInput.model_validate_json(encode(fields))
        if event_stream.MEDIA_TYPE not in request.headers.get("accept", ""):
            answer = await while_connected(request, self.answerer.answer(asked))
            return Response(_json(answer), media_type=JSON)
        frames = _frames(self.answerer.stream(asked))
        # Before the response begins, so that a failure of the search has its status.
        return event_stream.streamed(await while_connected(request, anext(frames)), frames)


OPERATIONS = (
    Operation(
        path="/ask",
        summary="Answer a question",
        description="Answer a question from the passages that a search finds, with citations that"
        " are checked. With `Accept: text/event-stream` the answer is streamed: `passages`, a"
        " `sentence` each, and `answer`, which is the whole result.",
        handler=Asking.ask,
        body=AskInput,
        parameters={},
        responses={200: ("The answer, or why there is none.", AskResult)},
        errors=CALL_ERRORS,
    ),
)


@asynccontextmanager
async def open_routes(settings: Settings, caller: Caller) -> AsyncIterator[AddedRoutes]:
    """Yield the route.

    Raises:
        ConfigurationError: if the model is behind an API whose address is missing.
    """
    search = partial(caller.read, "search-query")
    async with open_answerer(settings, search, caller.live.connection) as answerer:
        yield AddedRoutes(operations=OPERATIONS, state=Asking(answerer, settings.limits.values))


async def _frames(events: AsyncGenerator[Result]) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for event in events:
            yield event_stream.frame(EVENTS[type(event)], _json(event))


def _json(value: Result) -> bytes:
    return value.model_dump_json(by_alias=True, exclude_none=True).encode()
