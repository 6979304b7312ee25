"""JSON files that are lists of documents, each with its own source.

The value is a list of objects with the texts ``source`` and ``content``, and optionally ``title``
and the object ``metadata``; other fields are metadata too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ability_search.documents import NO_TEXT, Document
from ability_search.extensions.formats.conversations import read_json
from ability_search.extensions.formats.sent_documents import read_document
from ability_search.text.formats import EMPTY, Bounds, Extracted, too_much_text

_BEGINNING = re.compile(r"\A\ufeff?\s*+\[\s*+\{")
_SOURCE = '"source"'
_MOST = 100_000
_LONGEST_SOURCE = 1024
_FIELDS = frozenset({"source", "title", "content", "metadata"})


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
        if problem := _problem(value, bounds):
            unread.append((part, problem))
        else:
            children.append((part, _document(value)))
    return Extracted(NO_TEXT, "json", unread=tuple(unread), children=tuple(children))


def _objects(text: str) -> list[dict[str, Any]]:
    """Return the objects of a list of documents; none if the text is no such list."""
    if not _BEGINNING.match(text) or _SOURCE not in text:
        return []
    try:
        values = msgspec.json.decode(text.removeprefix("\ufeff"), type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError):
        return []
    return values if len(values) <= _MOST and all(map(_is_document, values)) else []


def _is_document(value: Mapping[str, Any]) -> bool:
    source, content = value.get("source"), value.get("content")
    return (
        isinstance(source, str)
        and bool(source.strip())
        and isinstance(content, str)
        and isinstance(value.get("title"), str | None)
        and isinstance(value.get("metadata"), dict | None)
    )


def _problem(value: Mapping[str, Any], bounds: Bounds) -> str:
    """Return why a document cannot be read; empty if it can."""
    if not value["content"].strip():
        return EMPTY
    if len(value["source"]) > _LONGEST_SOURCE:
        return f"its source is longer than {_LONGEST_SOURCE} characters"
    size = len(value["content"].encode())
    return str(too_much_text(bounds)) if size > bounds.text else ""


def _document(value: Mapping[str, Any]) -> Extracted:
    source, title = value["source"], value.get("title") or ""
    others = {name: each for name, each in value.items() if name not in _FIELDS}
    metadata = {**others, **(value.get("metadata") or {})}
    document = Document(source, title, value["content"], metadata=metadata)
    read = read_document(document, bool(title), "content")
    return Extracted(
        *(read.content, read.format, read.title, read.language, dict(read.metadata)), source=source
    )
