"""Bodies of requests, which are JSON objects and passed on as they came, and their queries."""

from __future__ import annotations

import asyncio
from difflib import get_close_matches

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request

from ability_search.errors import DeadlineExceeded, InvalidInput, TooLarge
from ability_search.gateway.problems import UnsupportedMediaType
from kadi_client import Raw
from kadi_client.messages import without_halves

_SECONDS = 30.0
"""For a whole body to arrive."""

Fields = dict[str, Raw]
"""A JSON object whose members have not been looked into."""

_FIELDS = msgspec.json.Decoder(Fields)
_PARAMETERS = "GET /openapi.json lists those of every path; a tool takes its input in the body."


async def read_json(request: Request, limit: int) -> bytes:
    """The body of a request, at most ``limit`` bytes; ``{}`` if there is none.

    Raises:
        UnsupportedMediaType: if it is said to be something else than JSON. What is JSON a page of
            another origin sends only after the browser has asked, so that this keeps it out.
        TooLarge: if it is longer; it is not read to its end then.
        DeadlineExceeded: if it does not arrive in time.
        ClientDisconnect: if the caller hangs up meanwhile.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise TooLarge(
                        f"the body has more than {limit} bytes",
                        hint="Send less at a time, or raise the setting gateway_request_bytes.",
                    )
    except TimeoutError as exc:
        raise DeadlineExceeded(f"the body did not arrive within {_SECONDS:g} s") from exc
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (body or kind):
        raise UnsupportedMediaType("the body is not said to be JSON")
    return bytes(body) or b"{}"


def fields_of(body: bytes) -> Fields:
    """The members of a JSON object; halves of surrogate pairs become U+FFFD, as on the network.

    Raises:
        InvalidInput: if it is none.
    """
    try:
        text = body.decode()
        try:
            return _FIELDS.decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return _FIELDS.decode(without_halves(text))
    except msgspec.ValidationError as exc:
        raise InvalidInput("body", "expected a JSON object") from exc
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise InvalidInput("body", "not valid JSON in UTF-8") from exc


def checked_query(query: QueryParams, *known: str) -> QueryParams:
    """The parameters of a query, all of which are among the ``known`` ones of its path.

    Raises:
        InvalidInput: naming one that is not, with the nearest one that is.
    """
    for name in query:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f"Did you mean {nearest[0]}?" if nearest else _PARAMETERS
            raise InvalidInput(name, "there is no such parameter", hint=hint)
    return query
