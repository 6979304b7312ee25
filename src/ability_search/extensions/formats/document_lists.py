"""JSON files that are lists of documents, each with its own source.

The value is a list of objects with the texts ``source`` and ``content``, and optionally ``title``
and the object ``metadata``; other fields are metadata too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ability_search.documents import NO_TEXT
from ability_search.extensions.formats.escapes import unescaped
from ability_search.extensions.formats.front_matter import read_markdown
from ability_search.text.formats import EMPTY, Bounds, Extracted, too_much_text
from ability_search.text.loaders.file_types import named_format

_BEGINNING = re.compile(r"\A\ufeff?\s*+\[\s*+\{")
_SOURCE = '"source"'
_MOST = 100_000
_LONGEST_SOURCE = 1024
_FIELDS = frozenset({"source", "title", "content", "metadata"})


def read_document_list(text: str, bounds: Bounds) -> Extracted | None:
    """Read a list of documents, which become the children of a file without text of its own.

    Returns:
        ``None`` if the text is no such list; so it is if a source is repeated, because a document
        would be lost.
    """
    values = _objects(text)
    if not values or len({each["source"] for each in values}) < len(values):
        return None
    children: list[tuple[str, Extracted]] = []
    unread: list[tuple[str, str]] = []
    for place, value in enumerate(values):
        part = f"document={place + 1}"
        if problem := _problem(value, bounds):
            unread.append((part, problem))
        else:
            children.append((part, _document(value, bounds)))
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


def _document(value: Mapping[str, Any], bounds: Bounds) -> Extracted:
    source, content = value["source"], value["content"]
    format, language = named_format(source)
    text = unescaped(content, name=source, format=format, language=language)
    markdown = Extracted(text, format)
    if not language and (format or "markdown") == "markdown":
        markdown = read_markdown(source, text, bounds)
    others = {name: each for name, each in value.items() if name not in _FIELDS}
    return Extracted(
        text,
        format,
        title=value.get("title") or markdown.title or source,
        language=language,
        metadata={**markdown.metadata, **others, **(value.get("metadata") or {})},
        source=source,
    )
