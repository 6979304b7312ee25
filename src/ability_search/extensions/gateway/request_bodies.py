"""Requests: query strings, JSON bodies whose members are passed on undecoded, and their end.

The bodies of /ingest, /files and /search are translated into inputs of tools.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import AliasChoices, Base64Encoder, EncodedBytes, Field
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from ability_search.errors import InvalidInput, TooLarge
from ability_search.extensions.cli.http_access import check_json
from ability_search.search.options import Collections
from ability_search.tools.inputs import (
    CollectionName,
    DedupThreshold,
    DocumentInput,
    JobId,
    QueryInput,
)
from ability_search.wire import Count, Input, NonBlank
from kadi_client import Raw
from kadi_client.messages import encode, has_more_values, without_halves

Fields = dict[str, Raw]
"""A JSON object with undecoded members."""

T = TypeVar("T")

_FIELDS = msgspec.json.Decoder(Fields)
_PARAMETERS = "GET /openapi.json lists all parameters; tools take their input in the body."

INGEST = "search-index"
SEARCH = "search-query"

FileParts = tuple[list[dict[str, Any]], Sequence[tuple[str, str]]]
"""The documents of a file, and its unread parts (``a.pdf#page=3``), each with the reason."""
ReadFile = Callable[[str, bytes], Awaitable[FileParts]]
"""Reads a file, given its name and its bytes; raises :class:`InvalidInput`."""

_EVERYTHING = Raw(b'"*"')
_NOTHING = Raw(b"{}")
_DOCUMENT = DocumentInput.model_fields


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


class IngestInput(Input):
    """A text to index."""

    content: str = Field(
        description="The whole text.", examples=["Backups run at two in the morning."]
    )
    title: str = Field(min_length=1, max_length=1024, description="Title.", examples=["Backups"])
    tag: CollectionName
    source: NonBlank | None = Field(
        None,
        max_length=1024,
        description="Unique name within the collection (path, URL); a text with the same name is"
        " replaced. Default: the title.",
        examples=["handbook/backups.md"],
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description=_DOCUMENT["metadata"].description,
        examples=_DOCUMENT["metadata"].examples,
    )


class _StrictBase64(Base64Encoder):
    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """Decode Base64; other characters are an error."""
        try:
            return b64decode(data, validate=True)
        except ValueError as exc:
            raise ValueError("not valid Base64") from exc


class UploadedFile(Input):
    """A file to index."""

    source: NonBlank = Field(
        max_length=1024,
        description="Name of the file, unique within the collection; its suffix decides how the"
        " file is read.",
        examples=["report.pdf"],
    )
    data: Annotated[bytes, EncodedBytes(encoder=_StrictBase64)] = Field(
        description="The file in Base64.", examples=["QmFja3VwcyBydW4gYXQgdHdvLg=="]
    )


class FilesInput(Input):
    """Files to index."""

    collection: CollectionName
    files: list[UploadedFile] = Field(min_length=1, max_length=256, description="The files.")
    dedup_threshold: DedupThreshold = None
    job_id: JobId = None


class SearchInput(QueryInput):
    """Same as search-query; without a collection, all collections are searched."""

    collection: Collections = Field(
        "*",
        validation_alias=AliasChoices("collection", "tag"),
        description="A collection, a list of collections, or * for all of them.",
        examples=["docs"],
    )


class GraphSearchInput(SearchInput):
    """Same as search-query with graph expansion."""

    hops: Count = Field(2, ge=1, le=3, description="Maximum number of hops.", examples=[2])


def ingested(fields: Fields) -> dict[str, Any]:
    """Return the input of search-index for a body of POST /ingest.

    Raises:
        ValidationError: if a field is invalid; it names every invalid field.
    """
    value = IngestInput.model_validate_json(encode(fields))
    document = {
        "source": value.source or value.title,
        "title": value.title,
        "content": value.content,
        "metadata": fields.get("metadata", _NOTHING),
    }
    return {"collection": value.tag, "documents": [document]}


async def uploaded(body: bytes, read_file: ReadFile) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the input of search-index for a body of POST /files, and the files that failed.

    Raises:
        ValidationError: if a field is invalid; it names every invalid field.
        InvalidInput: if no file can be read.
    """
    value = FilesInput.model_validate_json(body)
    documents: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []

    def fail(source: str, reason: str) -> None:
        failed.append({"source": source, "error": reason, "code": InvalidInput.code})

    for file in value.files:
        try:
            found, unread = await read_file(file.source, file.data)
        except InvalidInput as exc:
            fail(file.source, str(exc).removeprefix(f"{file.source}: "))
            continue
        documents += found
        for part, reason in unread:
            fail(part, reason)
    if not documents:
        first = failed[0]
        raise InvalidInput("files", f"none can be read; {first['source']}: {first['error']}")
    options = value.model_dump(by_alias=True, exclude_none=True, exclude={"files"})
    return {**options, "documents": documents}, failed


def searched(fields: Fields) -> Fields:
    """Return the input of search-query for a body of POST /search; ``tag`` names the collection.

    Raises:
        InvalidInput: if both ``tag`` and ``collection`` are given.
    """
    if "tag" not in fields:
        return {"collection": _EVERYTHING, **fields}
    if "collection" in fields:
        raise InvalidInput("tag", "give either tag or collection")
    return {"collection" if name == "tag" else name: value for name, value in fields.items()}


def graph_searched(fields: Fields) -> Fields:
    """Return the input of search-query for a body of POST /graph-search.

    Raises:
        InvalidInput: if both ``hops`` and ``graph``, or ``tag`` and ``collection``, are given.
    """
    if "graph" in fields and "hops" in fields:
        raise InvalidInput("hops", "give either hops or graph")
    hops = fields.get("hops", Raw(b"2"))
    others = {name: value for name, value in fields.items() if name != "hops"}
    return {"graph": Raw(b'{"hops": %b}' % bytes(hops)), **searched(others)}
