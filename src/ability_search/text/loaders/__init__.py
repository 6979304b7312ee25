"""Files to text: pure functions from bytes, one module per family of formats.

Text files keep their lines, so that line numbers are those of the file; other formats become
Markdown, or plain text with a form feed after each page. If a format needs a library that is not
installed, the error names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ability_search.text.chunkers import markdown_blocks
from ability_search.text.escapes import unescaped
from ability_search.text.formats import function, named, table
from ability_search.text.front_matter import FrontMatter, markdown_metadata, read_front_matter
from ability_search.text.loaders.encodings import decoded, detected
from ability_search.text.loaders.extracts import (
    EMPTY,
    NO_RECOGNITION,
    NOT_TEXT,
    OUT_OF_TIME,
    Bounds,
    Extracted,
    OutOfTime,
    Recognize,
    Unreadable,
    too_much_memory,
    too_much_text,
)
from ability_search.text.loaders.file_types import format_of, language_of

__all__ = [
    "EMPTY",
    "NOT_TEXT",
    "NO_RECOGNITION",
    "OUT_OF_TIME",
    "VERSION",
    "Bounds",
    "Extracted",
    "OutOfTime",
    "Unreadable",
    "decoded",
    "extract",
    "format_of",
    "is_foreign",
    "may_hold_documents",
    "too_much_memory",
]

VERSION = "1"
"""Version of the loaders; a change of the extracted text needs a new one."""

_LONGEST_TITLE = 300
_HEAD = 8192
"""Characters of Markdown searched for a title."""
Starved = Callable[[], bool]
_DEEPEST_MESSAGE = 4


def is_foreign(format: str | None) -> bool:
    """Return whether a format is read in a child process, see :attr:`.Format.binary`."""
    known = named(format)
    return known is not None and known.binary is not None


def may_hold_documents(format: str | None) -> bool:
    """Return whether files of a format hold documents, or may have held some before a change."""
    known = named(format)
    return known is not None and known.holds != ""


def extract(
    name: str,
    data: bytes,
    format: str | None,
    bounds: Bounds,
    *,
    recognize: Recognize | None = None,
    starved: Starved = lambda: False,
    depth: int = 0,
) -> Extracted:
    """Read the text of a file.

    Args:
        name: The name of the file.
        data: The content of the file.
        format: The result of :func:`format_of`, or a format chosen by the caller.
        bounds: Limits for the file.
        recognize: Reads images; ``None`` if they cannot be read.
        starved: Whether a library that failed has used most of the memory.
        depth: Number of messages that the file is attached to.

    Raises:
        Unreadable: if the file has no readable text.
    """

    def read_inner(inner: str, content: bytes) -> Extracted:
        of = format_of(inner, content)
        known = named(of)
        if depth == _DEEPEST_MESSAGE and known is not None and known.holds == "files":
            raise Unreadable("attached to too many messages")
        more: dict[str, Any] = {"recognize": recognize, "starved": starved, "depth": depth + 1}
        return extract(inner, content, of, bounds, **more)

    try:
        found = _read(name, data, format, bounds, recognize, read_inner)
    except Unreadable:
        raise
    except MemoryError as exc:
        raise too_much_memory(bounds) from exc
    except Exception as exc:
        if not is_foreign(format):
            raise
        # For a malformed file a library may raise any exception, and so it may out of memory.
        if starved():
            raise too_much_memory(bounds) from exc
        raise Unreadable("corrupt, or not what its name says") from exc
    text = _valid(found.text)
    if not text.strip() and not found.children:
        raise Unreadable(EMPTY)
    if len(text.encode()) > bounds.text:
        raise too_much_text(bounds)
    title = _valid(found.title)[:_LONGEST_TITLE] if found.title else None
    return replace(found, text=text, title=title)


def read_plain(name: str, text: str, _bounds: Bounds, *, format: str | None) -> Extracted:
    """Read text, its escapes decoded; chunking cuts it by ``format``, else by its content."""
    language = language_of(name) if format == "code" else None
    text = unescaped(text, name=name, format=format, language=language)
    return Extracted(text, format, language=language)


def read_markdown(_name: str, text: str, _bounds: Bounds) -> Extracted:
    """Read Markdown, with its front matter and its tags as metadata.

    The title is that of the front matter, else the first heading of level 1.
    """
    text = unescaped(text, format="markdown")
    matter = read_front_matter(text)
    title = markdown_title(text, matter)
    return Extracted(text, "markdown", title=title, metadata=markdown_metadata(text, matter))


def markdown_title(text: str, matter: FrontMatter | None = None) -> str | None:
    """Return the title in the front matter of Markdown, else its first heading of level 1."""
    matter = matter or read_front_matter(text)
    if matter.title:
        return matter.title
    blocks, _ = markdown_blocks.read_blocks(text[matter.end :][:_HEAD])
    return next((block.title for block in blocks if block.level == 1 and block.title), None)


def _read(
    name: str,
    data: bytes,
    format: str | None,
    bounds: Bounds,
    recognize: Recognize | None,
    read_inner: Callable[[str, bytes], Extracted],
) -> Extracted:
    known = named(format)
    if known is None:
        names = ", ".join(each.name for each in table().formats)
        raise Unreadable(f"no extension reads the format {format}; loaded are {names}")
    if known.binary is None:
        text, doubt = detected(data)
        read = function(known.text) if known.text else partial(read_plain, format=format)
        found: Extracted = read(name, text, bounds)
        return replace(found, unread=(*doubt, *found.unread))
    more: dict[str, Any] = {"recognize": recognize} if known.recognizes else {}
    if known.holds == "files":
        more["read"] = read_inner
    extracted: Extracted = function(known.binary)(name, data, bounds, **more)
    return extracted


def _valid(text: str) -> str:
    """Return the text with lone surrogates replaced, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
