"""The formats of documents: what a file of one is named, what reads it, and what that returns.

The plain formats are here. Extensions add others, or replace these by one of the same name. What
reads and cuts is named, as ``module:function``, and imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import Any

EMPTY = "empty"
"""Why a file without text is unreadable; its source is deleted if an earlier text is stored."""
NOT_TEXT = ", not text"
"""End of the reason why a binary file is unreadable; likewise."""
OUT_OF_TIME = "(file_timeout)"
"""End of the reason why a part is unreadable that may be read when the file is read again."""
CORRUPT = "corrupt, or not what its name says"


class Unreadable(ValueError):
    """No text can be read from a file; the message is the reason."""


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


def too_much_text(bounds: Bounds) -> Unreadable:
    """Return the error for a file whose text exceeds the bounds."""
    return Unreadable(f"more text than the {bounds.text} bytes allowed (max_document_bytes)")


def too_much_memory(bounds: Bounds) -> Unreadable:
    """Return the error for a file that cannot be read within the memory allowed."""
    return Unreadable(
        f"needs more than the {bounds.memory >> 20} MiB of memory allowed for reading a file;"
        " split it"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of documents.

    Functions are named as ``module:function``; ``None`` stands for that of plain text.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    """Suffixes of the names of files, in lower case and with the dot."""
    others: tuple[str, ...] = ()
    """Other names of the format."""
    text: str | None = None
    """``(name, text, bounds) -> Extracted``: reads the decoded text of a file."""
    binary: str | None = None
    """``(name, data, bounds) -> Extracted``: reads the bytes of a file, in place of ``text``.

    It runs in a child process, because it may crash, hang or use unbounded memory."""
    refused: str | None = None
    """``() -> str``: why no file of the format can be read on this machine; empty if files can."""
    begins: tuple[bytes, ...] = ()
    """First bytes of files of these suffixes, one of them; without it, their first bytes must not
    be those of archives, programs and other files that are no text."""
    isolate: str | None = None
    """``(bounds, timeout=, kept=, advance=) -> Extractor``: opens the child process in which the
    files of all formats with ``binary`` are read; one format names it."""
    decode: str | None = None
    """``bytes -> (text, doubt)``: decodes the text of all formats, see :func:`.loaders.detected`;
    one format names it."""
    holds_documents: bool = False
    """Whether a file may hold others, which become documents of their own."""
    front: str | None = None
    """``text -> (end, preface)``: where the metadata at the beginning of a text end, which are in
    no passage, and a text to begin the first passage with."""
    cut: str | None = None
    """``(ruler, language) -> passages``: cuts a text; ``None`` in their place means that it has
    another format."""
    language: str | None = None
    """``name -> bool``: whether ``cut`` is for texts in a language of this name."""
    sign: str | None = None
    """``text -> bool``: whether a text of unknown format has this one."""


MARKDOWN = Format(
    name="markdown",
    suffixes=(".markdown", ".md", ".mdx"),
    others=("md", "mdx"),
    text="ability_search.text.loaders:read_markdown",
    cut="ability_search.text.chunkers.strategies:chunk_markdown",
)
TEXT = Format(
    name="text",
    suffixes=(".log", ".text", ".txt"),
    others=("txt", "plain"),
    cut="ability_search.text.chunkers.strategies:chunk_plain",
)
UNKNOWN = Format(name="unknown")
"""That of a text of which nothing is known."""
PLAIN = (
    MARKDOWN,
    TEXT,
    UNKNOWN,
    Format(name="code", cut="ability_search.text.chunkers.strategies:chunk_lines"),
)
"""The formats whose text needs nothing but decoding."""


class FormatTable:
    """The formats of a process: the plain ones and further ones, which replace those of their name.

    Attributes:
        formats: All formats, the further ones last.
        by_name: Formats by all of their names.
        by_suffix: Names of formats by the suffixes of files.
        isolate: What opens the child process for foreign formats, if any format names it.
        decode: What decodes texts that are not in UTF-8, if any format names it.
    """

    def __init__(self, further: Iterable[Format] = ()) -> None:
        given = (*PLAIN, *further)
        self.formats = tuple({each.name: each for each in given}.values())
        self.by_name = {name: each for each in self.formats for name in (each.name, *each.others)}
        self.by_suffix = {suffix: each.name for each in self.formats for suffix in each.suffixes}
        # Also of formats that others of their name replace.
        self.isolate = next((each.isolate for each in given if each.isolate), None)
        self.decode = next((each.decode for each in given if each.decode), None)


_used: FormatTable | None = None


def use(formats: Iterable[Format]) -> None:
    """Use the formats of another process in this one, which loads no extensions."""
    global _used
    _used = FormatTable(formats)


def table() -> FormatTable:
    """Return the formats of this process; extensions stand above this module, found by name."""
    if _used is not None:
        return _used
    loaded: FormatTable = function("ability_search.extension:loaded")().formats
    return loaded


def named(name: str | None) -> Format | None:
    """Return the format of a name, ``None`` for an unknown text; ``None`` if there is none."""
    return table().by_name.get(UNKNOWN.name if name is None else name)


@cache
def function(name: str) -> Callable[..., Any]:
    """Return a function that is named as ``module:function``."""
    found: Callable[..., Any] = resolve_name(name)
    return found
