"""The formats of documents: what a file of one is named, and what reads and cuts it.

The plain formats are here. Extensions add others, or replace these by one of the same name. What
reads and cuts is named, as ``module:function``, and imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
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
    """``(name, data, bounds) -> Extracted``: reads the bytes of a file, in place of ``text``."""
    foreign: bool = False
    """Whether it is read by libraries that may crash, hang or use unbounded memory; this is done in
    a child process."""
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

_used: tuple[Format, ...] | None = None


def use(formats: tuple[Format, ...]) -> None:
    """Use the formats of another process in this one, which loads no extensions."""
    global _used
    _used = formats


def named(name: str | None) -> Format | None:
    """Return the format of a name, ``None`` for an unknown text; ``None`` if there is none."""
    return _by_name(_added()).get("unknown" if name is None else name)


def formats() -> tuple[Format, ...]:
    """Return all formats, those of extensions last."""
    return _all(_added())


def by_suffix() -> dict[str, str]:
    """Return the names of formats by the suffixes of files."""
    return _by_suffix(_added())


def _added() -> tuple[Format, ...]:
    """Return the formats of extensions, which stand above this module and are found by name."""
    if _used is not None:
        return _used
    return tuple(function("ability_search.extension:loaded")().formats)


@cache
def function(name: str) -> Callable[..., Any]:
    """Return a function that is named as ``module:function``."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


@cache
def _all(further: tuple[Format, ...]) -> tuple[Format, ...]:
    return tuple({each.name: each for each in (*PLAIN, *further)}.values())


@cache
def _by_name(further: tuple[Format, ...]) -> dict[str, Format]:
    return {name: each for each in _all(further) for name in (each.name, *each.others)}


@cache
def _by_suffix(further: tuple[Format, ...]) -> dict[str, str]:
    return {suffix: each.name for each in _all(further) for suffix in each.suffixes}
