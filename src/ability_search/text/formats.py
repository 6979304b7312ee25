"""The formats of documents: what a file of one is named, and what reads and cuts it.

The plain formats are here. Extensions add others, or replace these by one of the same name. What
reads and cuts is named, as ``module:function``, and imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any, Literal


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
    recognizes: bool = False
    """Whether ``binary`` takes ``recognize``, which reads the text of an image."""
    holds: Literal["", "documents", "files"] = ""
    """Kind of what a file may hold, which become documents of their own. If it is files, ``binary``
    takes ``read``, which reads one."""
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
    """

    def __init__(self, further: Iterable[Format] = ()) -> None:
        self.formats = tuple({each.name: each for each in (*PLAIN, *further)}.values())
        self.by_name = {name: each for each in self.formats for name in (each.name, *each.others)}
        self.by_suffix = {suffix: each.name for each in self.formats for suffix in each.suffixes}


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
