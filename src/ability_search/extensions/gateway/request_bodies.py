"""Requests: JSON bodies, whose members are passed on undecoded, query strings, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from difflib import get_close_matches
from typing import TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from ability_search.errors import InvalidInput, TooLarge
from ability_search.extensions.cli.http_access import check_json
from kadi_client import Raw
from kadi_client.messages import has_more_values, without_halves

Fields = dict[str, Raw]
"""A JSON object with undecoded members."""

T = TypeVar("T")

_FIELDS = msgspec.json.Decoder(Fields)
_PARAMETERS = "GET /openapi.json lists all parameters; tools take their input in the body."


async def read_json(request: Request, max_values: int) -> bytes:
    """Return the body of a request; ``{}`` if it is empty.

    Raises:
        UnsupportedMediaType: if its Content-Type is not JSON.
        TooLarge: if it has more than ``max_values`` values.
        ClientDisconnect: if the client disconnects meanwhile.
    """
    body = await request.body()
    if body or request.headers.get("content-type"):
        check_json(request.headers)
    if has_more_values(body, max_values):
        raise TooLarge(
            f"body: more than {max_values} objects and arrays",
            hint="Send less at a time (10,000, and 50 for each of max_batch_documents).",
        )
    return body or b"{}"


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


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of ``work``; disconnecting cancels it. The request body must be read.

    Raises:
        ClientDisconnect: if the client disconnected.
    """
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
