"""Reading of requests: JSON bodies, whose members are passed on undecoded, and query strings."""

from __future__ import annotations

import asyncio
from difflib import get_close_matches

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request

from ability_search.errors import DeadlineExceeded, InvalidInput, TooLarge
from ability_search.ops.http_access import check_json
from kadi_client import Raw
from kadi_client.messages import without_halves

_SECONDS = 30.0
"""Maximum time for a whole body to arrive."""

Fields = dict[str, Raw]
"""A JSON object with undecoded members."""

_FIELDS = msgspec.json.Decoder(Fields)
_PARAMETERS = "GET /openapi.json lists all parameters; tools take their input in the body."


async def read_json(request: Request, limit: int) -> bytes:
    """Return the body of a request; ``{}`` if it is empty.

    Raises:
        UnsupportedMediaType: if its Content-Type is not JSON.
        TooLarge: if it is longer than ``limit`` bytes; the rest is not read.
        DeadlineExceeded: if it does not arrive in time.
        ClientDisconnect: if the client disconnects meanwhile.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise TooLarge(
                        f"the body has more than {limit} bytes",
                        hint="Send less at a time, or increase the setting gateway_request_bytes.",
                    )
    except TimeoutError as exc:
        raise DeadlineExceeded(f"the body did not arrive within {_SECONDS:g} s") from exc
    if body or request.headers.get("content-type"):
        check_json(request.headers)
    return bytes(body) or b"{}"


def fields_of(body: bytes) -> Fields:
    """Return the members of a JSON object; unpaired surrogates become U+FFFD, as on the network.

    Raises:
        InvalidInput: if the body is not a JSON object in UTF-8.
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
    """Return the parameters of a query string after checking that all are ``known``.

    Raises:
        InvalidInput: if one is unknown; the hint suggests the nearest known one.
    """
    for name in query:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f"Did you mean {nearest[0]}?" if nearest else _PARAMETERS
            raise InvalidInput(name, "no such parameter", hint=hint)
    return query
