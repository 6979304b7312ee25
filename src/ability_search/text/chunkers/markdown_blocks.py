"""Parsing Markdown into top-level blocks and fences, by markdown-it-py (CommonMark and tables).

Only blocks are parsed, and the inline content of headings for their plain text.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.token import Token

from ability_search.text.chunkers import boundaries, chunk_packing
from ability_search.text.chunkers.boundaries import Lines, Span

MOST_BLOCKS = 200_000
"""Maximum blocks of a text; one block per fifty characters in a text of ten megabytes."""
_TOKENS = 300_000
_TOKENS_PER_CHARACTER = 0.2
"""Maximum tokens per character, in addition to ``_TOKENS``; prose has one per 30 characters."""
_LONGEST_TITLE = 2_000
"""Maximum characters of a title; the rest is ignored."""
_MOST_REFERENCES = 10_000
"""Maximum link definitions that titles can refer to."""
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

    def cuts(self) -> tuple[chunk_packing.BreakPoint, ...]:
        """Return the ways to cut the block if it exceeds a chunk, coarsest first."""
        if self.kind == "fence":
            return chunk_packing.BY_BLANK_LINES
        if self.kind in VERBATIM_KINDS:
            return chunk_packing.VERBATIM
        if self.kind in _CONTAINERS:
            return (
                chunk_packing.BreakPoint(chunk_packing.ITEM, self._by_item),
                chunk_packing.BreakPoint(chunk_packing.LINE, self._by_line),
                *chunk_packing.PROSE,
            )
        return chunk_packing.PROSE

    def _by_item(self, ruler: chunk_packing.Ruler, start: int, end: int) -> Iterator[Span]:
        cuts = (item for item in self.items if start < item < end)
        return boundaries.lines_between(ruler.text, start, end, cuts)

    def _by_line(self, ruler: chunk_packing.Ruler, start: int, end: int) -> Iterator[Span]:
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
    reading.md.block.tokenize(reading, 0, reading.lineMax)
    reading.end()
    # A title may refer to a link definition anywhere in the text.
    blocks = [
        replace(block, title=_plain(block.title, reading.env)) if block.level else block
        for block in reading.blocks
    ]
    return blocks, reading.fences


class _References(dict[str, Any]):
    """The link definitions of a text; those beyond the limit are ignored."""

    def __setitem__(self, label: str, definition: Any) -> None:
        if len(self) < _MOST_REFERENCES:
            super().__setitem__(label, definition)


class _Reading(StateBlock):
    """Parser state of one text, which takes what it needs from each token and keeps none.

    A rule describes a token after it pushed it. A token is therefore read when the next one comes,
    and a block when the next block begins. All tokens would take some hundred bytes for each byte
    of text.
    """

    def __init__(self, text: str) -> None:
        source = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        env = {"references": _References(), "duplicate_refs": deque[Any](maxlen=0)}
        # The parser would read a form feed as text, and begin a paragraph with it.
        super().__init__(source.replace("\f", " "), _parser(), env, [])
        self.blocks: list[Block] = []
        self.fences: list[Fence] = []
        self._text = text
        self._starts = Lines(text)
        self._room = _TOKENS + int(_TOKENS_PER_CHARACTER * len(text))
        """Number of tokens that may follow."""
        self._done = 0
        """End of the last block."""
        self._last: Token | None = None
        self._outer: Token | None = None
        """Token of the block that is being read."""
        self._title = ""
        self._items: list[int] = []
        self._fences_before = 0
        """Number of fences in the blocks before it."""

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        """Begin a token; read the one before it."""
        self._read_last()
        self._last = super().push(ttype, tag, nesting)
        self.tokens.clear()
        self._room -= 1
        if self._room < 0:
            raise chunk_packing.Unstructured("too many tokens of Markdown")
        return self._last

    def end(self) -> None:
        """Read what is left after the last token."""
        self._read_last()
        self._add_block()
        self._define(len(self._text))

    def _read_last(self) -> None:
        token, self._last = self._last, None
        if token is None or token.map is None or token.nesting < 0:
            return
        if token.level == 0:
            self._add_block()
            self._outer = token
        elif token.level == 1 and token.type == "inline":
            self._title = token.content[:_LONGEST_TITLE]
        elif token.level == 1:
            self._items.append(self._span(token.map[0], token.map[0] + 1)[0])
        if token.type == "fence":
            language = next(iter(token.info.split()), None)
            self.fences.append(Fence(*self._span(*token.map), language=language))

    def _add_block(self) -> None:
        """Add the block of the outermost token."""
        token, self._outer = self._outer, None
        title, self._title = self._title, ""
        items, self._items = tuple(self._items), []
        fences, self._fences_before = self.fences[self._fences_before :], len(self.fences)
        if token is None or token.map is None:
            return
        first, last = self._span(*token.map)
        self._define(first)
        self._done = last
        if first == last:
            # White space that Markdown does not count as blank, such as U+2028.
            return
        if token.type == "heading_open":
            self.blocks.append(Block(token.type, first, last, int(token.tag[1:]), title))
        elif token.type in _CONTAINERS:
            inner = tuple((fence.start, fence.end) for fence in fences)
            self.blocks.append(Block(token.type, first, last, items=items, fences=inner))
        else:
            self.blocks.append(Block(token.type, first, last))
        if len(self.blocks) > MOST_BLOCKS:
            raise chunk_packing.Unstructured(f"more than {MOST_BLOCKS} blocks")

    def _define(self, end: int) -> None:
        """Add the link definitions before ``end``, for which the parser returns no tokens."""
        first, last = boundaries.trim_lines(self._text, self._done, end)
        if first < last:
            self.blocks.append(Block("definition", first, last))

    def _span(self, first: int, last: int) -> Span:
        """Return the span of lines, from ``first`` to before ``last``."""
        start, end = self._starts.offset(first), self._starts.offset(last)
        return boundaries.trim_lines(self._text, start, end)


def _plain(title: str, references: MutableMapping[str, Any]) -> str:
    if not _INLINE_MARK.search(title):
        return chunk_packing.clipped(" ".join(title.split()))
    inline = _parser().parseInline(title, references)
    return chunk_packing.clipped(" ".join("".join(map(_text_of, inline[0].children or ())).split()))


def _text_of(token: Token) -> str:
    if token.children:
        return "".join(map(_text_of, token.children))
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return "" if token.type == "html_inline" else token.content


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
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
