"""The structure of a Markdown text, and the ``markdown-headers`` strategy.

markdown-it-py reads it (CommonMark with tables). Only blocks are parsed, and the inline content of
headings for their plain text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ability_search.chunking import boundaries
from ability_search.chunking.boundaries import Lines, Span
from ability_search.chunking.packing import (
    BLOCK,
    GLUE,
    ITEM,
    LINE,
    PROSE,
    VERBATIM,
    Cut,
    Passages,
    Ruler,
    Unit,
    cut_unit,
    pack,
)
from ability_search.documents import Passage

SEPARATOR = " > "
FRONT_MATTER = re.compile(
    r"(?P<fence>---|\+\+\+)[ \t]*(?:\r\n?|\n)"
    r"(?:#|[\w\"'][^:=\r\n]*[:=]).*?(?<=[\r\n])"
    r"(?:(?P=fence)|\.\.\.)[ \t]*(?=\r|\n|\Z)",
    re.DOTALL,
)
_CONTAINERS = frozenset({"bullet_list_open", "ordered_list_open", "blockquote_open"})
_VERBATIM = frozenset({"fence", "code_block", "table_open", "front_matter"})


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced code block at any depth: its whole lines, the first word of its info string."""

    start: int
    end: int
    language: str | None


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block of Markdown; a heading has a ``level`` from 1 and a ``title``."""

    kind: str
    start: int
    end: int
    level: int = 0
    title: str = ""
    items: tuple[int, ...] = ()
    """Where the items of a list or the blocks of a quotation begin."""
    fences: tuple[Span, ...] = ()
    """Fences within a list or quotation."""

    def cuts(self) -> tuple[Cut, ...]:
        """How the block is cut if it alone exceeds a chunk."""
        if self.kind in _VERBATIM:
            return VERBATIM
        if self.kind in _CONTAINERS:
            return (Cut(ITEM, self._by_item), Cut(LINE, self._by_line), *PROSE)
        return PROSE

    def _by_item(self, ruler: Ruler, start: int, end: int) -> Iterator[Span]:
        return _lines_cut(ruler.text, start, end, self.items)

    def _by_line(self, ruler: Ruler, start: int, end: int) -> Iterator[Span]:
        """Lines, but every fence whole."""
        for first, last in (*self.fences, (end, end)):
            if first >= end:
                first = last = end
            if first >= start:
                yield from boundaries.lines(ruler.text, start, first)
                if first < last:
                    yield first, last
                start = last


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under one heading (the first of them), with the titles from the outermost in."""

    path: tuple[str, ...]
    blocks: tuple[Block, ...]


def chunk_markdown(ruler: Ruler, blocks: Sequence[Block]) -> list[Passage]:
    """Cut a Markdown text, of which ``blocks`` were read, at its headings.

    Each section is chunked by itself, with the breadcrumb of its headings; sections are not merged,
    however short, because their breadcrumb is what finds them. Only a heading with nothing below it
    but deeper headings goes with the first of these. What comes before the first heading has no
    breadcrumb, and front matter is a passage of its own. A long section is cut between blocks, then
    items, sentences, lines, words and signs; a fence or table that fits into a chunk stays whole.
    """
    passages = Passages(ruler.text)
    return [
        passages.make(packed, breadcrumb=SEPARATOR.join(section.path))
        for section in read_sections(blocks)
        for packed in pack(ruler, _units(ruler, section.blocks))
    ]


def read_blocks(text: str) -> tuple[list[Block], list[Fence]]:
    """The top-level blocks of a Markdown text, and its fences at any depth.

    The blocks cover everything but blank lines: front matter comes as one of kind
    ``front_matter``, link definitions as ``definition``. Front matter (YAML or TOML) is recognized
    at the very beginning, if its first line is a comment or has a key; otherwise a ``---`` there is
    a thematic break.
    """
    matter = FRONT_MATTER.match(text)
    origin = matter.end() if matter else 0
    blocks = [Block("front_matter", 0, origin)] if matter else []
    fences: list[Fence] = []
    body = text[origin:]
    lines = Lines(body)
    references: dict[str, Any] = {}
    # A form feed, which ends a page, makes no paragraph.
    tokens = _parser().parse(body.replace("\f", " "), references)

    def span(token: Token) -> Span:
        first, last = token.map or (0, 0)
        return boundaries.trim_lines(
            text, origin + lines.offset(first), origin + lines.offset(last)
        )

    done = origin
    for index, token in enumerate(tokens):
        if token.map is None or token.nesting < 0:
            continue
        if token.type == "fence":
            fences.append(Fence(*span(token), language=next(iter(token.info.split()), None)))
        if token.level > 0:
            continue
        start, end = span(token)
        blocks += _definitions(text, done, start)
        done = end
        if token.type == "heading_open":
            title = _plain(tokens[index + 1].content, references)
            blocks.append(Block(token.type, start, end, int(token.tag[1:]), title))
        elif token.type in _CONTAINERS:
            inner = list(_inside(tokens, index))
            items = tuple(span(each)[0] for each in inner if each.level == 1)
            whole = tuple(span(each) for each in inner if each.type == "fence")
            blocks.append(Block(token.type, start, end, items=items, fences=whole))
        else:
            blocks.append(Block(token.type, start, end))
    blocks += _definitions(text, done, len(text))
    return blocks, fences


def read_sections(blocks: Sequence[Block]) -> list[Section]:
    """Put blocks under their headings, in order; a level may be skipped."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    current: list[Block] = []

    def close() -> None:
        if current:
            sections.append(Section(tuple(title for _, title in path if title), tuple(current)))
            current.clear()

    for block in blocks:
        if block.level:
            bare = bool(current) and all(each.level for each in current)
            if not (bare and block.level > current[-1].level):
                close()
            while path and path[-1][0] >= block.level:
                path.pop()
            path.append((block.level, block.title))
        current.append(block)
        if block.kind == "front_matter":
            close()
    close()
    return sections


def _units(ruler: Ruler, blocks: Sequence[Block]) -> Iterator[Unit]:
    headings_start: int | None = None
    for block in blocks:
        rank = BLOCK if headings_start is None else GLUE
        unit = Unit(block.start, block.end, rank, block.cuts())
        if block.level or headings_start is None or block.kind in _VERBATIM:
            yield unit
        else:
            yield from _following(ruler, headings_start, unit)
        if not block.level:
            headings_start = None
        elif headings_start is None:
            headings_start = block.start


def _following(ruler: Ruler, start: int, unit: Unit) -> list[Unit]:
    """The unit, its beginning cut so far that it fits behind the heading at ``start``."""
    leaves_room = ruler.estimate(start, unit.start) <= ruler.max_tokens // 2
    if not leaves_room or not unit.cuts or ruler.fits(start, unit.end):
        return [unit]
    first, *rest = cut_unit(ruler, unit)
    return [*_following(ruler, start, first), *rest]


def _lines_cut(text: str, start: int, end: int, cuts: Sequence[int]) -> Iterator[Span]:
    for stop in (*(cut for cut in cuts if start < cut < end), end):
        span = boundaries.trim_lines(text, start, stop)
        if span[0] < span[1]:
            yield span
        start = stop


def _definitions(text: str, start: int, end: int) -> list[Block]:
    """Link definitions, which the parser takes away, between two blocks."""
    first, last = boundaries.trim_lines(text, start, end)
    return [Block("definition", first, last)] if first < last else []


def _inside(tokens: Sequence[Token], index: int) -> Iterator[Token]:
    for token in tokens[index + 1 :]:
        if token.level == 0:
            return
        if token.map is not None and token.nesting >= 0:
            yield token


def _plain(title: str, references: dict[str, Any]) -> str:
    inline = _inline_parser().parseInline(title, references)
    return " ".join("".join(map(_text_of, inline[0].children or ())).split()) if inline else ""


def _text_of(token: Token) -> str:
    if token.children:
        return "".join(map(_text_of, token.children))
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return "" if token.type == "html_inline" else token.content


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").disable("inline")


@functools.cache
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")
