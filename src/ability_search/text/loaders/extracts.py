"""What is read from a file, how much of it may be, and why nothing could be."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

PAGE_END = "\n\f\n"
"""A form feed, as pdftotext writes it; the newlines make it the end of a paragraph as well."""

INSTALL = "pip install 'ability-search[documents]'"


class Unreadable(ValueError):
    """A file that no text can be read from; its words say why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be read from one file, in bytes."""

    text: int
    """Of text, in UTF-8."""
    unpacked: int
    """Of what a compressed file is unpacked to."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file, and what the file says of itself."""

    text: str
    format: str | None
    """Format of the text, as chunking knows it; ``None`` lets chunking look."""
    title: str | None = None
    language: str | None = None
    """Programming language."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """JSON values."""


def library(name: str, *, reads: str) -> Any:
    """Import an optional library.

    Raises:
        Unreadable: if it is not installed; says how it is.
    """
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise Unreadable(f"reading {reads} needs an extra: {INSTALL}") from exc


def too_much_text(bounds: Bounds) -> Unreadable:
    """The failure of a file whose text exceeds the bounds."""
    return Unreadable(f"more text than the {bounds.text} bytes allowed (max_document_bytes)")


def known(**fields: str | None) -> dict[str, Any]:
    """Metadata of the fields that say something, with single spaces."""
    told = {name: " ".join((value or "").split()) for name, value in fields.items()}
    return {name: value for name, value in told.items() if value}
