"""Files to text: pure functions from bytes.

Text files keep their lines, so that line numbers are those of the file; what extensions read from
other formats becomes Markdown, or plain text with a form feed after each page.
"""

from __future__ import annotations

from dataclasses import replace

from ability_search.text.chunkers.markdown_blocks import read_blocks
from ability_search.text.formats import (
    CORRUPT,
    EMPTY,
    NOT_TEXT,
    Bounds,
    Extracted,
    Format,
    Unreadable,
    function,
    named,
    table,
    too_much_memory,
    too_much_text,
)
from ability_search.text.loaders.file_types import format_of, language_of

__all__ = [
    "EMPTY",
    "NOT_TEXT",
    "VERSION",
    "Bounds",
    "Extracted",
    "Unreadable",
    "decoded",
    "extract",
    "format_of",
    "is_foreign",
]

VERSION = "1"
"""Version of the loaders; a change of the extracted text needs a new one."""

Doubt = tuple[tuple[str, str], ...]
"""The encoding that is assumed, as ``encoding=cp1250``, with the reason; empty without doubt."""
_LONGEST_TITLE = 300
_HEAD = 8192
"""Characters of Markdown searched for a title."""


def is_foreign(format: str | None) -> bool:
    """Return whether a format is read in a child process, see :attr:`.Format.binary`."""
    known = named(format)
    return known is not None and known.binary is not None


def extract(name: str, data: bytes, format: str | None, bounds: Bounds) -> Extracted:
    """Read the text of a file, in this process.

    Args:
        name: The name of the file.
        data: The content of the file.
        format: The result of :func:`format_of`, or a format chosen by the caller.
        bounds: Limits for the file.

    Raises:
        Unreadable: if the file has no readable text.
    """
    known = named(format)
    if known is None:
        names = ", ".join(each.name for each in table().formats)
        raise Unreadable(f"no extension reads the format {format}; loaded are {names}")
    try:
        found = _read(name, data, known, format, bounds)
    except Unreadable:
        raise
    except MemoryError as exc:
        raise too_much_memory(bounds) from exc
    except Exception as exc:
        if known.binary is None:
            raise
        # For a malformed file a library may raise any exception.
        raise Unreadable(CORRUPT) from exc
    text = _valid(found.text)
    if not text.strip() and not found.children:
        raise Unreadable(EMPTY)
    if len(text.encode()) > bounds.text:
        raise too_much_text(bounds)
    title = _valid(found.title)[:_LONGEST_TITLE] if found.title else None
    return replace(found, text=text, title=title)


def _read(name: str, data: bytes, known: Format, format: str | None, bounds: Bounds) -> Extracted:
    if known.binary:
        extracted: Extracted = function(known.binary)(name, data, bounds)
        return extracted
    text, doubt = detected(data)
    if known.text:
        found: Extracted = function(known.text)(name, text, bounds)
    else:
        found = Extracted(text, format, language=language_of(name) if format == "code" else None)
    return replace(found, unread=(*doubt, *found.unread))


def read_markdown(_name: str, text: str, _bounds: Bounds) -> Extracted:
    """Read Markdown unchanged, with its first heading of level 1 as the title."""
    return Extracted(text, "markdown", title=first_heading(text))


def first_heading(text: str) -> str | None:
    """Return the first heading of level 1 at the beginning of Markdown; ``None`` without one."""
    blocks, _ = read_blocks(text[:_HEAD])
    return next((block.title for block in blocks if block.level == 1 and block.title), None)


def decoded(data: bytes) -> str:
    """Return the text that :func:`detected` returns."""
    return detected(data)[0]


def detected(data: bytes) -> tuple[str, Doubt]:
    """Decode a text, as an extension that knows other encodings than UTF-8 does, if there is one.

    Raises:
        Unreadable: if the bytes are not text, or in an encoding that is not known.
    """
    if known := table().decode:
        found: tuple[str, Doubt] = function(known)(data)
        return found
    if b"\0" in data:
        raise Unreadable("binary" + NOT_TEXT)
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as exc:
        raise Unreadable("not in UTF-8; the extension formats reads other encodings") from exc


def _valid(text: str) -> str:
    """Return the text with lone surrogates replaced, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
