"""JSON: cut between elements and members, with their path as breadcrumb."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import ITEM, VERBATIM, Ruler, Unit, clipped, pack

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_OTHER = r'[\[\]{},]|[^\s"\[\]{},:]++'
_MARK = re.compile(f'{_STRING}"?+|{_OTHER}', re.DOTALL)
_CLOSED_STRINGS = re.compile(f'[^"]*+(?:{_STRING}"[^"]*+)*+', re.DOTALL)
"""Matches the text before the first unclosed string."""
_MARK_OUTSIDE_STRINGS = re.compile(_OTHER)
_NAME = re.compile(r"[A-Za-z_$][\w$-]*\Z")
_CLOSING = {"[": "]", "{": "}"}
_DEEPEST = 64
"""Maximum depth of nesting; deeper containers are cut as plain text."""
_SMALL = 8
"""Containers of at most this fraction of the maximum tokens, in characters, are never cut."""


@dataclass(slots=True)
class _Container:
    """Start offsets of the elements (of their keys) of an array, an object or the document."""

    opened_by: str
    opened_at: int
    starts: array[int] = field(default_factory=lambda: array("q"))
    inner: dict[int, _Container] = field(default_factory=dict)
    """Nested containers by the index of their element."""


def chunk_json(ruler: Ruler, _language: str | None = None) -> list[Passage] | None:
    """Cut JSON, or several JSON values (JSON Lines), between elements.

    Small elements share a passage; a long element is cut between its own elements, and a long
    value between lines, words and characters. Commas and closing brackets belong to the element
    before them, keys and opening brackets to the element after them. The breadcrumb is the common
    path of the elements in a passage, such as ``users[3].address``; empty for the whole document.

    Returns:
        The passages, or ``None`` if the brackets of the text do not match.
    """
    root = _scan(ruler.text, small=ruler.max_tokens // _SMALL)
    if root is None:
        return None
    units = _units(ruler, root, (0, len(ruler.text)), (), ITEM)
    return [
        ruler.passage(packed, breadcrumb="".join(packed.path).removeprefix("."))
        for packed in pack(ruler, units)
    ]


def _scan(text: str, *, small: int) -> _Container | None:
    """Return the containers of a text, nested in the document; ``None`` if brackets do not match.

    Args:
        text: One or more JSON values.
        small: Maximum characters of a container to skip.
    """
    root = _Container("", 0)
    open_ones = [root]
    """Open containers, without those that are too deep."""
    expects = [True]
    closing = bytearray()
    """Closing brackets of all open containers, innermost last."""
    for match in _marks(text):
        mark = match[0]
        is_kept = len(closing) < len(open_ones)
        if mark in ("]", "}"):
            if not closing or closing.pop() != ord(mark):
                return None
            if is_kept:
                expects.pop()
                closed, outer = open_ones.pop(), open_ones[-1]
                if match.end() - closed.opened_at <= small:
                    del outer.inner[len(outer.starts) - 1]
            continue
        if mark == ",":
            expects[-1] |= is_kept
            continue
        if is_kept and expects[-1]:
            open_ones[-1].starts.append(match.start())
            expects[-1] = len(open_ones) == 1
        if mark in ("[", "{"):
            closing.append(ord(_CLOSING[mark]))
            if is_kept and len(open_ones) <= _DEEPEST:
                outer = open_ones[-1]
                outer.inner[len(outer.starts) - 1] = opened = _Container(mark, match.start())
                open_ones.append(opened)
                expects.append(True)
    return None if closing else root


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Yield strings, brackets, commas and other literals in order.

    After an unclosed string the rest of the text is read as if it had no quotation marks.
    """
    closed = _CLOSED_STRINGS.match(text)
    end = closed.end() if closed else 0
    return chain(_MARK.finditer(text, 0, end), _MARK_OUTSIDE_STRINGS.finditer(text, end + 1))


def _units(
    ruler: Ruler, container: _Container, span: Span, path: tuple[str, ...], rank: int
) -> Iterator[Unit]:
    """Yield the elements of a container that fills ``span``; cut those that do not fit.

    ``rank`` is the rank of the boundary before the container.
    """
    begin = span[0]
    for index, stop in enumerate(chain(islice(container.starts, 1, None), (span[1],))):
        first, last = boundaries.trim_lines(ruler.text, begin, stop)
        begin = stop
        if first == last:
            continue
        step = _step(ruler.text, container, index)
        unit = Unit(first, last, rank, VERBATIM, (*path, step) if step else path)
        inner = container.inner.get(index)
        if inner is None or ruler.fits(first, last) or len(path) >= _DEEPEST:
            yield unit
        else:
            yield from _units(ruler, inner, (first, last), unit.path, rank)
        rank = ITEM + len(path)


def _step(text: str, container: _Container, index: int) -> str:
    """Return the part of a path that names one element of a container."""
    if container.opened_by == "{" and index < len(container.starts):
        key = _MARK.match(text, container.starts[index])
        if key is None:
            return ""
        try:
            name = str(json.loads(key[0], strict=False))
        except ValueError:
            name = key[0]
        name = clipped(name)
        return f".{name}" if _NAME.match(name) else f"[{json.dumps(name, ensure_ascii=False)}]"
    alone = container.opened_by == "" and len(container.starts) == 1
    return "" if alone else f"[{index}]"
