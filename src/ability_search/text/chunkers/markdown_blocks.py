"""Parsing Markdown into top-level blocks and fences, by markdown-it-py (CommonMark and tables).

Only blocks are parsed, and the inline content of headings for their plain text. A text is parsed in
stretches, because the parser creates some hundred bytes of tokens for each byte of text.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.token import Token

from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Lines, Span
from ability_search.text.chunkers.chunk_packing import (
    BY_BLANK_LINES,
    ITEM,
    LINE,
    PROSE,
    VERBATIM,
    Cut,
    Ruler,
    Unstructured,
    clipped,
)

MOST_BLOCKS = 200_000
"""Maximum blocks of a text; one block per fifty characters in a text of ten megabytes."""
_STRETCH = 1 << 16
"""Approximate number of characters parsed in one call."""
_LONGEST_BLOCK = 1 << 18
"""Characters; a longer list, quotation or paragraph is parsed as several."""
_TOKENS = 300_000
_TOKENS_PER_CHARACTER = 0.2
"""Maximum tokens per character, in addition to ``_TOKENS``; prose has one per 30 characters."""
_LONGEST_TITLE = 2_000
"""Maximum characters of a title; the rest is ignored."""
_MOST_REFERENCES = 10_000
"""Maximum link definitions that titles can refer to."""
_CLOSING_FENCE = re.compile(r"(?<![^\r\n]) {0,3}(`{3,}+|~{3,}+)[ \t]*+(?=[\r\n]|\Z)")
_BLANK_LINE = re.compile(r"(?<![^\r\n])[ \t]*+(?=[\r\n])")
_INLINE_MARK = re.compile(r"[\\`*_\[\]<>&!\n]")
_CONTAINERS = frozenset({"bullet_list_open", "ordered_list_open", "blockquote_open"})
VERBATIM_KINDS = frozenset({"fence", "code_block", "table_open"})


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced code block at any depth; ``language`` is the first word of its info string."""

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
    """Start offsets of the items of a list or of the blocks of a quotation."""
    fences: tuple[Span, ...] = ()
    """Fences within a list or quotation."""

    def cuts(self) -> tuple[Cut, ...]:
        """Return the ways to cut the block if it exceeds a chunk, coarsest first."""
        if self.kind == "fence":
            return BY_BLANK_LINES
        if self.kind in VERBATIM_KINDS:
            return VERBATIM
        if self.kind in _CONTAINERS:
            return (Cut(ITEM, self._by_item), Cut(LINE, self._by_line), *PROSE)
        return PROSE

    def _by_item(self, ruler: Ruler, start: int, end: int) -> Iterator[Span]:
        return _lines_cut(ruler.text, start, end, self.items)

    def _by_line(self, ruler: Ruler, start: int, end: int) -> Iterator[Span]:
        """Yield the lines, and each fence as a whole."""
        for first, last in (*self.fences, (end, end)):
            if first >= end:
                first = last = end
            if first >= start:
                yield from boundaries.lines(ruler.text, start, first)
                if first < last:
                    yield first, last
                start = last


def read_blocks(text: str) -> tuple[list[Block], list[Fence]]:
    """Return the top-level blocks of a Markdown text, and its fences at any depth.

    The blocks cover all lines that are not blank. Link definitions are blocks of kind
    ``definition``.

    Raises:
        Unstructured: if there are too many blocks or tokens.
    """
    reading = _Reading(text)
    reading.read()
    return reading.blocks, reading.fences


class _Reading:
    """Parser state of one text, which is read stretch by stretch.

    The end of a block depends on the text after it. A stretch is therefore read up to its last
    block, and the next stretch begins with that block. Stretches grow while one block fills them.
    """

    def __init__(self, text: str) -> None:
        self.blocks: list[Block] = []
        self.fences: list[Fence] = []
        self._text = text
        self._lines = Lines(text)
        self._tokens = 0
        """Number of tokens so far."""
        self._done = 0
        """End of the last block."""
        self._start = self._first = 0
        """Start of the stretch, as an offset and as a line index."""
        self._references: dict[str, Any] = {}
        self._titles: dict[int, str] = {}
        """Titles that may refer to a link definition, by the index of their heading's block."""

    def read(self) -> None:
        """Read the text.

        Raises:
            Unstructured: if there are too many blocks or tokens.
        """
        text = self._text
        most = _TOKENS + _TOKENS_PER_CHARACTER * len(text)
        start, size = 0, _STRETCH
        while start < len(text):
            end = self._lines.offset(bisect_left(self._lines.starts, start + size))
            begin, start = start, self._read_stretch(start, end, size=size)
            size = _STRETCH if start > begin else 2 * size
            if len(self.blocks) > MOST_BLOCKS:
                raise Unstructured(f"more than {MOST_BLOCKS} blocks")
            if self._tokens > most:
                raise Unstructured("too many tokens of Markdown")
        self._define(len(text))
        for place, title in self._titles.items():
            plain = _plain(title, {"references": self._references})
            self.blocks[place] = replace(self.blocks[place], title=plain)

    def _read_stretch(self, start: int, end: int, *, size: int) -> int:
        """Read blocks from ``start`` to ``end`` and return the start of the next stretch.

        If one block fills the stretch, this is ``start`` again: the next stretch is twice as long.
        """
        self._start, self._first = start, self._lines.number(start) - 1
        found: dict[str, Any] = {}
        # The parser would read a form feed as text, and begin a paragraph with it.
        tokens = _parser().parse(self._text[start:end].replace("\f", " "), found)
        self._tokens += len(tokens)
        if len(self._references) < _MOST_REFERENCES:
            self._references = found.get("references", {}) | self._references
        backwards = range(len(tokens) - 1, -1, -1)
        last = next((at for at in backwards if _is_outermost(tokens[at])), None)
        if end == len(self._text):
            self._take(tokens)
            return end
        if last is None:
            begin = self._after_blank_line(start, end)
        else:
            begin = self._line(_lines_of(tokens[last])[0])
        if begin > start:
            self._take(tokens[:last])
            return begin
        if size < _LONGEST_BLOCK:
            return start
        self._take(tokens)
        return end if last is None else self._read_on(tokens[last], end)

    def _take(self, tokens: Sequence[Token]) -> None:
        """Add the blocks and fences that these tokens describe."""
        for index, token in enumerate(tokens):
            if token.map is None or token.nesting < 0:
                continue
            if token.type == "fence":
                language = next(iter(token.info.split()), None)
                self.fences.append(Fence(*self._span(token), language=language))
            if token.level > 0:
                continue
            first, last = self._span(token)
            self._define(first)
            self._done = last
            if first == last:
                # White space that Markdown does not count as blank, such as U+2028.
                continue
            if token.type == "heading_open":
                title = self._title(tokens[index + 1].content[:_LONGEST_TITLE])
                self.blocks.append(Block(token.type, first, last, int(token.tag[1:]), title))
            elif token.type in _CONTAINERS:
                inner = list(_inside(tokens, index))
                items = tuple(self._span(each)[0] for each in inner if each.level == 1)
                whole = tuple(self._span(each) for each in inner if each.type == "fence")
                self.blocks.append(Block(token.type, first, last, items=items, fences=whole))
            else:
                self.blocks.append(Block(token.type, first, last))

    def _read_on(self, token: Token, end: int) -> int:
        """Return the end of the last block of a stretch, beyond the stretch for fences and tables.

        The rest of a fence or table, parsed separately, would be taken for other blocks.
        """
        first, last = _lines_of(token)
        place = end
        if token.type == "fence":
            place = self._end_of_fence(token.markup, self._line(first + 1))
        elif token.type == "table_open" and self._line(last) == end:
            blank = _BLANK_LINE.search(self._text, end)
            place = blank.start() if blank else len(self._text)
        if place <= end:
            return end
        self._done = boundaries.trim(self._text, end, place)[1]
        self.blocks[-1] = replace(self.blocks[-1], end=self._done)
        if token.type == "fence":
            self.fences[-1] = replace(self.fences[-1], end=self._done)
        return place

    def _end_of_fence(self, markup: str, start: int) -> int:
        for match in _CLOSING_FENCE.finditer(self._text, start):
            if match[1].startswith(markup):
                return match.end()
        return len(self._text)

    def _title(self, content: str) -> str:
        if "[" not in content:
            return _plain(content, {})
        self._titles[len(self.blocks)] = content
        return ""

    def _define(self, end: int) -> None:
        """Add the link definitions before ``end``, for which the parser returns no tokens."""
        first, last = boundaries.trim_lines(self._text, self._done, end)
        if first < last:
            self.blocks.append(Block("definition", first, last))

    def _after_blank_line(self, start: int, end: int) -> int:
        """Return the offset after the last blank line; ``start`` if no line is blank."""
        number = self._lines.number(end) - 1
        while (line := self._lines.offset(number)) > start:
            number -= 1
            if self._text[self._lines.offset(number) : line].isspace():
                return line
        return start

    def _span(self, token: Token) -> Span:
        first, last = _lines_of(token)
        return boundaries.trim_lines(self._text, self._line(first), self._line(last))

    def _line(self, index: int) -> int:
        """Return the start offset of a line of the stretch."""
        return self._lines.offset(self._first + index) if index else self._start


def _is_outermost(token: Token) -> bool:
    return token.level == 0 and token.map is not None and token.nesting >= 0


def _lines_of(token: Token) -> tuple[int, int]:
    first, last = token.map or (0, 0)
    return first, last


def _lines_cut(text: str, start: int, end: int, cuts: Sequence[int]) -> Iterator[Span]:
    return boundaries.lines_between(text, start, end, (cut for cut in cuts if start < cut < end))


def _inside(tokens: Sequence[Token], index: int) -> Iterator[Token]:
    for place in range(index + 1, len(tokens)):
        token = tokens[place]
        if token.level == 0:
            return
        if token.map is not None and token.nesting >= 0:
            yield token


def _plain(title: str, references: dict[str, Any]) -> str:
    if not _INLINE_MARK.search(title):
        return clipped(" ".join(title.split()))
    inline = _inline_parser().parseInline(title, references)
    return clipped(" ".join("".join(map(_text_of, inline[0].children or ())).split()))


def _text_of(token: Token) -> str:
    if token.children:
        return "".join(map(_text_of, token.children))
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return "" if token.type == "html_inline" else token.content


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table").disable("inline")
    parser.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
    return parser


def _whole_table(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parse a table as one block, without its cells, which could be many for few bytes."""
    if not table(state, first, end, True):
        return False
    if silent:
        return True
    ends = state.md.block.ruler.getRules("blockquote")
    outer, state.parentType = state.parentType, "table"
    line = first + 2
    while (
        line < end
        and not state.isEmpty(line)
        and state.sCount[line] >= state.blkIndent
        and not state.is_code_block(line)
        and not any(rule(state, line, end, True) for rule in ends)
    ):
        line += 1
    state.parentType = outer
    state.push("table_open", "table", 1).map = [first, line]
    state.push("table_close", "table", -1)
    state.line = line
    return True


@functools.cache
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")
