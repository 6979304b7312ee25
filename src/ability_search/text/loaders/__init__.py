"""Files to text: pure functions from bytes, one module per family of formats.

Text files keep their lines, so that line numbers are those of the file; other formats become
Markdown, or plain text with a form feed after each page. If a format needs a library that is not
installed, the error names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ability_search.extensions.formats.conversations import read_conversation, read_json, read_text
from ability_search.extensions.formats.email_messages import read_email, read_mbox
from ability_search.extensions.formats.html import read_epub, read_html, read_svg
from ability_search.extensions.formats.office_documents import (
    read_docx,
    read_odf,
    read_pptx,
    read_rtf,
    read_xlsx,
)
from ability_search.extensions.formats.pdf import read_pdf
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
from ability_search.text.loaders.file_types import format_of
from ability_search.text.loaders.text_files import (
    read_csv,
    read_markdown,
    read_notebook,
    read_plain,
    read_restructured,
)

__all__ = [
    "EMPTY",
    "FOREIGN",
    "MAY_HOLD_DOCUMENTS",
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
    "too_much_memory",
]

VERSION = "1"
"""Version of the loaders; a change of the extracted text needs a new one."""

FOREIGN = frozenset(
    ("docx", "email", "epub", "html", "image", "mbox", "odf", "pdf", "pptx", "rtf", "svg", "xlsx")
)
"""Formats read by libraries that may crash, hang or use unbounded memory."""

CONTAINERS = {"email": read_email, "mbox": read_mbox}
"""Formats of files that hold others, which become documents of their own."""

MAY_HOLD_DOCUMENTS = frozenset((*CONTAINERS, "json"))
"""Formats of files that hold documents, or may have held some before they changed."""

_READERS: dict[str, Callable[[str, bytes, Bounds], Extracted]] = {
    "docx": read_docx,
    "epub": read_epub,
    "html": read_html,
    "odf": read_odf,
    "pptx": read_pptx,
    "rtf": read_rtf,
    "svg": read_svg,
    "xlsx": read_xlsx,
}
_TEXT_READERS: dict[str | None, Callable[[str, str, Bounds], Extracted]] = {
    "code": partial(read_plain, format="code"),
    "csv": read_csv,
    "conversation": read_conversation,
    "json": read_json,
    "markdown": read_markdown,
    "notebook": read_notebook,
    "rst": read_restructured,
    "text": partial(read_text, format="text"),
    None: partial(read_text, format=None),
}
_LONGEST_TITLE = 300
Starved = Callable[[], bool]
_DEEPEST_MESSAGE = 4


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
    try:
        found = _read(name, data, format, bounds, recognize, starved, depth)
    except Unreadable:
        raise
    except MemoryError as exc:
        raise too_much_memory(bounds) from exc
    except Exception as exc:
        if format not in FOREIGN:
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


def _read(
    name: str,
    data: bytes,
    format: str | None,
    bounds: Bounds,
    recognize: Recognize | None,
    starved: Starved,
    depth: int,
) -> Extracted:
    if format == "pdf":
        return read_pdf(name, data, bounds, recognize=recognize)
    if format == "image":
        return _read_image(data, recognize)
    if format in CONTAINERS:
        if depth > _DEEPEST_MESSAGE:
            raise Unreadable("attached to too many messages")
        read = partial(
            _read_child, bounds=bounds, recognize=recognize, starved=starved, depth=depth + 1
        )
        return CONTAINERS[format](name, data, bounds, read=read)
    if format in _READERS:
        return _READERS[format](name, data, bounds)
    text, doubt = detected(data)
    found = _TEXT_READERS[format](name, text, bounds)
    return replace(found, unread=(*doubt, *found.unread))


def _read_image(data: bytes, recognize: Recognize | None) -> Extracted:
    if recognize is None:
        raise Unreadable(f"an image; {NO_RECOGNITION}")
    text = recognize(data)
    if not text.strip():
        raise Unreadable("an image without text")
    return Extracted(text, "text")


def _read_child(
    name: str,
    data: bytes,
    *,
    bounds: Bounds,
    recognize: Recognize | None,
    starved: Starved,
    depth: int,
) -> Extracted:
    format = format_of(name, data)
    return extract(name, data, format, bounds, recognize=recognize, starved=starved, depth=depth)


def _valid(text: str) -> str:
    """Return the text with lone surrogates replaced, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
