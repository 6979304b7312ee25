"""Shared parts of the readers of foreign formats: libraries, archives, and files within files."""

from __future__ import annotations

import importlib
import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ability_search.text.formats import Bounds, Extracted, Unreadable, too_much_memory
from ability_search.text.loaders import extract, format_of

PAGE_END = "\n\f\n"
"""A form feed, as pdftotext writes it, with newlines, so that a paragraph ends there too."""
NO_RECOGNITION = "its text is read if tesseract is installed (apt install tesseract-ocr)"
_INSTALL = "pip install 'ability-search[documents]'"
_LONGEST_FIELD = 10_000
"""Characters of a field of a file's metadata; attachments repeat those of their message."""
_DEEPEST_MESSAGE = 4
_MESSAGES = frozenset({"email", "mbox"})
_STATUS = Path("/proc/self/status")
_PEAK = "VmPeak:"

Recognize = Callable[[bytes], str]
"""Returns the text in an image; raises :class:`Unreadable`."""


class OutOfTime(Unreadable):
    """No further image of the file is read; the next indexing goes on with it."""


@dataclass(frozen=True, slots=True)
class ForeignReading(Bounds):
    """Limits for one file, with what reads the images in it."""

    recognize: Recognize | None = None
    """``None`` if images cannot be read."""
    depth: int = 0
    """Number of messages that the file is attached to."""

    @classmethod
    def within(cls, bounds: Bounds, recognize: Recognize | None = None) -> ForeignReading:
        """Return a reading within these bounds; the bounds if they are of a reading."""
        if isinstance(bounds, ForeignReading):
            return bounds
        return cls(**asdict(bounds), recognize=recognize)


def read_file(name: str, data: bytes, format: str | None, reading: ForeignReading) -> Extracted:
    """Read the text of a file as :func:`.extract` does, in this process.

    Raises:
        Unreadable: if the file has no readable text, or its library has used most of the memory.
    """
    try:
        return extract(name, data, format, reading)
    except Unreadable as exc:
        # A library out of memory may raise any exception.
        if not isinstance(exc.__cause__, ImportError | None) and is_spent():
            raise too_much_memory(reading) from exc
        raise


def read_attachment(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read the text of a file in a message; errors as for :func:`read_file`."""
    reading = ForeignReading.within(bounds)
    format = format_of(name, data)
    if reading.depth == _DEEPEST_MESSAGE and format in _MESSAGES:
        raise Unreadable("attached to too many messages")
    return read_file(name, data, format, replace(reading, depth=reading.depth + 1))


def is_spent() -> bool:
    """Return whether this process has ever used most of the memory that it may use."""
    with suppress(ImportError, OSError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        for line in _STATUS.read_text().splitlines():
            if line.startswith(_PEAK) and most != resource.RLIM_INFINITY:
                return int(line.split()[1]) << 10 > most // 2
    return False


def library(name: str, *, reads: str) -> Any:
    """Import an optional library.

    Raises:
        Unreadable: if it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise Unreadable(f"reading {reads} needs an extra: {_INSTALL}") from exc


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


def known(**fields: str | None) -> dict[str, Any]:
    """Return the fields that are not blank, with whitespace collapsed, of limited length."""
    clean = {
        name: " ".join((value or "").split())[:_LONGEST_FIELD] for name, value in fields.items()
    }
    return {name: value for name, value in clean.items() if value}
