"""The routes /ingest and /search, translated into tool calls."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from ability_search.errors import InvalidInput
from ability_search.http.request_bodies import Fields
from ability_search.search.options import Collections, QueryInput
from ability_search.tools.inputs import CollectionName, DocumentInput
from ability_search.wire import Input, NonBlank
from kadi_client import Raw
from kadi_client.messages import encode

INGEST = "search-index"
SEARCH = "search-query"

_EVERYTHING = Raw(b'"*"')
_NOTHING = Raw(b"{}")
_DOCUMENT = DocumentInput.model_fields


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


class SearchInput(QueryInput):
    """Same as search-query; without a collection, all collections are searched."""

    collection: Collections = Field(
        "*",
        validation_alias=AliasChoices("collection", "tag"),
        description="A collection, a list of collections, or * for all of them.",
        examples=["docs"],
    )


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
