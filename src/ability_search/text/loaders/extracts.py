"""The text extracted from a file, limits on its size, and the error for unreadable files."""

from __future__ import annotations

import importlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

PAGE_END = "\n\f\n"
"""A form feed, as pdftotext writes it, with newlines, so that a paragraph ends there too."""

EMPTY = "empty"
"""Why a file without text is unreadable; its source is deleted if an earlier text is stored."""

NOT_TEXT = ", not text"
"""End of the reason why a binary file is unreadable; likewise."""

OUT_OF_TIME = "(file_timeout)"
"""End of the reason why a part is unreadable that may be read when the file is read again."""

_LONGEST_FIELD = 10_000
"""Characters of a field of a file's metadata; attachments repeat those of their message."""

INSTALL = "pip install 'ability-search[documents]'"


class Unreadable(ValueError):
    """No text can be read from a file; the message is the reason."""


class OutOfTime(Unreadable):
    """No further image of the file is read; the next indexing goes on with it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for one file, in bytes."""

    text: int
    """Maximum size of the text in UTF-8."""
    unpacked: int
    """Maximum size of a compressed file's content."""
    memory: int = 2 << 30
    """Maximum address space of the process that reads risky formats."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file and its metadata."""

    text: str
    format: str | None
    """Format of the text for chunking; ``None`` if unknown."""
    title: str | None = None
    language: str | None = None
    """Programming language."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """JSON values."""
    unread: tuple[tuple[str, str], ...] = ()
    """Parts that could not be read, such as ``page=3``, each with the reason."""
    children: tuple[tuple[str, Extracted], ...] = ()
    """Documents in the file, each after its name, such as ``attachment=a.pdf``; none of them has
    children or unread parts."""
    source: str | None = None
    """Source of a document in a file, if it is not named after the file."""

    @property
    def late(self) -> bool:
        """Return whether parts are unread for lack of time."""
        return any(reason.endswith(OUT_OF_TIME) for _, reason in self.unread)


Recognize = Callable[[bytes], str]
"""Returns the text in an image; raises :class:`Unreadable`."""

NO_RECOGNITION = "its text is read if tesseract is installed (apt install tesseract-ocr)"


def library(name: str, *, reads: str) -> Any:
    """Import an optional library.

    Raises:
        Unreadable: if it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise Unreadable(f"reading {reads} needs an extra: {INSTALL}") from exc


def xml_parser(*, reads: str) -> Callable[[bytes], Any]:
    """Return a parser of XML that follows no entity and no address; its result may be ``None``.

    Raises:
        Unreadable: if the library is missing; the message has the command to install it.
    """
    etree = library("lxml.etree", reads=reads)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    return partial(etree.fromstring, parser=parser)


def checked_archive(data: bytes, bounds: Bounds) -> io.BytesIO:
    """Return the file if its unpacked size is within the bounds.

    The sizes declared in the archive are reliable: no more of a member is ever unpacked.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    file = io.BytesIO(data)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise Unreadable("encrypted: needs a password")
    unpacked = sum(member.file_size for member in members)
    if unpacked > bounds.unpacked:
        raise Unreadable(
            f"unpacks to {unpacked} bytes, more than the {bounds.unpacked} allowed"
            " (max_unpacked_bytes)"
        )
    return file


def too_much_text(bounds: Bounds) -> Unreadable:
    """Return the error for a file whose text exceeds the bounds."""
    return Unreadable(f"more text than the {bounds.text} bytes allowed (max_document_bytes)")


def too_much_memory(bounds: Bounds) -> Unreadable:
    """Return the error for a file that cannot be read within the memory allowed."""
    return Unreadable(
        f"needs more than the {bounds.memory >> 20} MiB of memory allowed for reading a file;"
        " split it"
    )


def known(**fields: str | None) -> dict[str, Any]:
    """Return the fields that are not blank, with whitespace collapsed, of limited length."""
    clean = {
        name: " ".join((value or "").split())[:_LONGEST_FIELD] for name, value in fields.items()
    }
    return {name: value for name, value in clean.items() if value}
