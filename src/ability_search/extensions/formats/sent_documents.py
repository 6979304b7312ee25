"""Documents that callers send, and those in JSON files: read as files of their names would be.

The value of such a file is a list of objects with the texts ``source`` and ``content``, and
optionally ``title`` and the object ``metadata``; other fields are metadata too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from ability_search.documents import NO_TEXT, Document
from ability_search.errors import InvalidInput
from ability_search.extensions.formats.conversation_turns import (
    CONVERSATION,
    conversation_text,
    is_conversation,
)
from ability_search.extensions.formats.conversations import conversations_of, read_json
from ability_search.extensions.formats.escapes import named_format, unescaped
from ability_search.extensions.formats.front_matter import markdown_metadata, markdown_title
from ability_search.text.chunkers.strategies import is_markdown
from ability_search.text.formats import EMPTY, Bounds, Extracted, too_much_text
from ability_search.text.loaders.file_types import language_of

_BEGINNING = re.compile(r"\A\ufeff?\s*+\[\s*+\{")
_SOURCE = '"source"'
_MOST = 100_000
_LONGEST_SOURCE = 1024
_FIELDS = frozenset({"source", "title", "content", "metadata"})


def read_document(document: Document, titled: bool, field: str) -> Document:
    """Return a document with the format of its name, its title and its metadata.

    The text of a file that was read already is left as it is.

    Args:
        document: The document.
        titled: Whether the caller gave its title, which is kept then, even an empty one.
        field: Name of its text in the input.

    Raises:
        InvalidInput: if a conversation is none.
    """
    if document.file_hash is None:
        given: tuple[str | None, str | None] = document.format, document.language
        format, language = given if any(given) else named_format(document.source)
        text = unescaped(document.content, name=document.source, format=format, language=language)
        if (text, format, language) != (document.content, *given):
            document = replace(document, content=text, format=format, language=language)
    own = {}
    if is_markdown(document.content, document.format, document.language):
        own = markdown_metadata(document.content)
    return replace(
        document,
        title=document.title if titled else _title(document),
        content=_content(document, field),
        metadata={**own, **document.metadata},
    )


def _title(document: Document) -> str:
    """Return the title of Markdown, else the source."""
    other = document.language or (document.format or "markdown") != "markdown"
    if other or language_of(document.source):
        return document.source
    return markdown_title(document.content) or document.source


def _content(document: Document, field: str) -> str:
    """Return the text of a document; a conversation becomes the list of its turns."""
    given = document.content
    if document.format != CONVERSATION or is_conversation(given) or not given.strip():
        return given
    text = conversation_text(conversations_of(given))
    if not text:
        raise InvalidInput(
            field,
            "is not a conversation",
            hint="Send JSON Lines with role, content and time of each message.",
        )
    return text


class _Listed(msgspec.Struct):
    """The fields that make an object a document; it may have others."""

    source: str
    content: str
    title: str | None = None
    metadata: dict[str, Any] | None = None


def read_json_file(name: str, text: str, bounds: Bounds) -> Extracted:
    """Read a list of documents, which become the children of a file without text of its own.

    Other JSON is read by :func:`.read_json`, also a list in which a source is repeated, because a
    document would be lost.
    """
    values = _objects(text)
    if not values or len({each["source"] for each in values}) < len(values):
        return read_json(name, text, bounds)
    children: list[tuple[str, Extracted]] = []
    unread: list[tuple[str, str]] = []
    for place, value in enumerate(values):
        part = f"document={place + 1}"
        if not value["content"].strip():
            unread.append((part, EMPTY))
        elif len(value["source"]) > _LONGEST_SOURCE:
            unread.append((part, f"its source is longer than {_LONGEST_SOURCE} characters"))
        elif len(value["content"].encode()) > bounds.text:
            unread.append((part, str(too_much_text(bounds))))
        else:
            children.append((part, _document(value)))
    return Extracted(NO_TEXT, "json", unread=tuple(unread), children=tuple(children))


def _objects(text: str) -> list[dict[str, Any]]:
    """Return the objects of a list of documents; none if the text is no such list."""
    if not _BEGINNING.match(text) or _SOURCE not in text:
        return []
    try:
        values = msgspec.json.decode(text.removeprefix("\ufeff"), type=list[dict[str, Any]])
        listed = msgspec.convert(values, list[_Listed])
    except (msgspec.DecodeError, RecursionError):
        return []
    return values if len(values) <= _MOST and all(each.source.strip() for each in listed) else []


def _document(value: Mapping[str, Any]) -> Extracted:
    source, title = value["source"], value.get("title") or ""
    others = {name: each for name, each in value.items() if name not in _FIELDS}
    metadata = {**others, **(value.get("metadata") or {})}
    document = Document(source, title, value["content"], metadata=metadata)
    read = read_document(document, bool(title), "content")
    metadata = dict(read.metadata)
    if read.format is None and not read.language:
        # As in a file of its own, the text of an unknown format is read as Markdown.
        metadata = {**markdown_metadata(read.content), **metadata}
    return Extracted(read.content, read.format, read.title, read.language, metadata, source=source)
