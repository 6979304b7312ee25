"""Documents that callers send: read as files of their names would be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ability_search.documents import Document
from ability_search.errors import InvalidInput
from ability_search.extensions.formats.conversation_turns import (
    CONVERSATION,
    conversation_text,
    is_conversation,
)
from ability_search.extensions.formats.conversations import conversations_of
from ability_search.extensions.formats.escapes import named_format, unescaped
from ability_search.extensions.formats.front_matter import markdown_metadata, markdown_title
from ability_search.text.chunkers.strategies import is_markdown
from ability_search.text.loaders.file_types import language_of


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
        document = _with_format(document)
    return replace(
        document,
        title=document.title if titled else _title(document),
        content=_content(document, field),
        metadata=_metadata(document),
    )


def _with_format(document: Document) -> Document:
    given: tuple[str | None, str | None] = document.format, document.language
    format, language = given if any(given) else named_format(document.source)
    text = unescaped(document.content, name=document.source, format=format, language=language)
    return replace(document, content=text, format=format, language=language)


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


def _metadata(document: Document) -> Mapping[str, Any]:
    """Return the metadata of a document: that of the caller, and that in the text of Markdown."""
    if not is_markdown(document.content, document.format, document.language):
        return document.metadata
    return {**markdown_metadata(document.content), **document.metadata}
