"""JSON by structure: cut between elements and members, with their path as breadcrumb."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ability_search.chunking import boundaries
from ability_search.chunking.boundaries import Span
from ability_search.chunking.packing import ITEM, VERBATIM, Passages, Ruler, Unit, pack
from ability_search.documents import Passage

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_OTHER = r'[\[\]{},]|[^\s"\[\]{},:]++'
_MARK = re.compile(rf'{_STRING}(?:"|(?P<unclosed>))|{_OTHER}', re.DOTALL)
_MARK_OUTSIDE_STRINGS = re.compile(_OTHER)
_NAME = re.compile(r"[A-Za-z_$][\w$-]*\Z")
_CLOSING = {"[": "]", "{": "}"}
_DEEPEST = 64
"""Containers below this depth are cut as plain text."""


@dataclass(slots=True)
class _Container:
    """Offsets at which the elements (from their key) of an array, object or document begin."""

    opened_by: str
    starts: list[int] = field(default_factory=list)
    inner: dict[int, _Container] = field(default_factory=dict)
    """Containers by the index of the element that they are the value of."""


def chunk_json(ruler: Ruler) -> list[Passage] | None:
    """Cut JSON, or JSON values one after another (JSON Lines), between elements.

    Small elements are put together; one that is too long is cut between its own elements, and a
    value that is too long between lines, words and signs. Commas and closing brackets go with the
    element before them, keys and opening brackets with the one behind. The breadcrumb is the path
    that everything in the passage shares, as ``users[3].address``; the whole document has none.

    Returns:
        The passages, or ``None`` if the brackets of the text do not match.
    """
    root = _scan(ruler.text)
    if root is None:
        return None
    passages = Passages(ruler.text)
    units = _units(ruler, root, (0, len(ruler.text)), (), ITEM)
    return [
        passages.make(packed, breadcrumb="".join(packed.path).removeprefix("."))
        for packed in pack(ruler, units)
    ]


def _scan(text: str) -> _Container | None:
    """The containers of a text; ``None`` if brackets do not match."""
    root = _Container("")
    open_ones = [root]
    expects = [True]
    for match in _marks(text):
        mark = match[0]
        container = open_ones[-1]
        if mark in ("]", "}"):
            if _CLOSING.get(container.opened_by) != mark:
                return None
            open_ones.pop()
            expects.pop()
        elif mark == ",":
            expects[-1] = True
        else:
            if expects[-1]:
                container.starts.append(match.start())
                expects[-1] = container is root
            if mark in _CLOSING:
                opened = _Container(mark)
                container.inner[len(container.starts) - 1] = opened
                open_ones.append(opened)
                expects.append(True)
    return root if len(open_ones) == 1 else None


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Yield strings, brackets, commas and other literals in order.

    Where one string is not closed no later one is: each is a part of it. The rest of the text is
    then read as if it had no quotation marks.
    """
    for match in _MARK.finditer(text):
        if match["unclosed"] is not None:
            yield from _MARK_OUTSIDE_STRINGS.finditer(text, match.start() + 1)
            return
        yield match


def _units(
    ruler: Ruler, container: _Container, span: Span, path: tuple[str, ...], rank: int
) -> Iterator[Unit]:
    """The elements of a container that fills ``span``, cut finer where they do not fit.

    ``rank`` is that of the boundary before the container.
    """
    cuts = container.starts[1:]
    begin = span[0]
    for index, stop in enumerate([*cuts, span[1]]):
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
    """The part of a path that names one element of a container."""
    if container.opened_by == "{" and index < len(container.starts):
        key = _MARK.match(text, container.starts[index])
        return _key(key[0]) if key else ""
    alone = container.opened_by == "" and len(container.starts) == 1
    return "" if alone else f"[{index}]"


def _key(literal: str) -> str:
    try:
        name = json.loads(literal, strict=False)
    except ValueError:
        name = literal
    return f".{name}" if _NAME.match(str(name)) else f"[{json.dumps(name, ensure_ascii=False)}]"


def looks_like_json(text: str) -> bool:
    """Whether the text is a JSON array or object, or several of them one after another."""
    start, end = boundaries.trim(text, 0, len(text))
    if text[start : start + 1] not in _CLOSING or text[end - 1] not in _CLOSING.values():
        return False
    values: Sequence[str] = [text] if _is_json(text) else text.split("\n")
    return all(_is_json(value) for value in values if value.strip())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
