"""Files to text: pure functions from bytes, one module a family of formats.

What people would open in a text editor stays as it is, so that its lines are those of the file;
everything else becomes Markdown, or plain text with a form feed behind each page. Libraries that
are not installed are named in the reason why a file cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ability_search.text.loaders.extracts import Bounds, Extracted, Unreadable, too_much_text
from ability_search.text.loaders.file_types import format_of
from ability_search.text.loaders.front_matter import read_markdown
from ability_search.text.loaders.html import read_html
from ability_search.text.loaders.notebooks import read_notebook
from ability_search.text.loaders.office_documents import read_docx, read_pptx, read_xlsx
from ability_search.text.loaders.pdf import read_pdf
from ability_search.text.loaders.plain_text import (
    decoded,
    read_code,
    read_json,
    read_text,
    read_unknown,
)
from ability_search.text.loaders.restructured_text import read_restructured
from ability_search.text.loaders.table_rows import read_csv

__all__ = [
    "FOREIGN",
    "VERSION",
    "Bounds",
    "Extracted",
    "Unreadable",
    "decoded",
    "extract",
    "format_of",
]

VERSION = "1"
"""Of everything here that decides what is read from the same bytes."""

FOREIGN = frozenset({"docx", "html", "pdf", "pptx", "xlsx"})
"""Formats that libraries read which may crash, hang or take any amount of memory."""

_READERS: dict[str | None, Callable[[str, bytes, Bounds], Extracted]] = {
    "code": read_code,
    "csv": read_csv,
    "docx": read_docx,
    "html": read_html,
    "json": read_json,
    "markdown": read_markdown,
    "notebook": read_notebook,
    "pdf": read_pdf,
    "pptx": read_pptx,
    "rst": read_restructured,
    "text": read_text,
    "xlsx": read_xlsx,
    None: read_unknown,
}
_LONGEST_TITLE = 300


def extract(name: str, data: bytes, format: str | None, bounds: Bounds) -> Extracted:
    """Read the text of a file.

    Args:
        name: Its name.
        data: Its bytes.
        format: As :func:`format_of` tells, or as somebody wants it to be read.
        bounds: How much may be read.

    Raises:
        Unreadable: if there is no text that can be read.
    """
    try:
        found = _READERS[format](name, data, bounds)
    except Unreadable:
        raise
    except MemoryError as exc:
        raise Unreadable("needs more memory than allowed") from exc
    except Exception as exc:
        if format not in FOREIGN:
            raise
        # For a file that is not as it should be a library may raise anything.
        raise Unreadable("corrupt, or not what its name says") from exc
    text = _valid(found.text)
    if not text.strip():
        raise Unreadable("empty")
    if len(text.encode()) > bounds.text:
        raise too_much_text(bounds)
    title = _valid(found.title)[:_LONGEST_TITLE] if found.title else None
    return replace(found, text=text, title=title)


def _valid(text: str) -> str:
    """The text without halves of signs, which cannot be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
