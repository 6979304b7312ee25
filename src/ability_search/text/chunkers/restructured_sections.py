"""reStructuredText: cut at section titles, as Markdown is at its headings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.chunk_packing import Ruler, Unstructured, clipped
from ability_search.text.chunkers.markdown_sections import MOST_BLOCKS, Block, chunk_markdown

_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1*[ \t]*")
_SHORTEST = 4
"""Adornments of so many signs need not be as long as the title."""


def chunk_rst(ruler: Ruler) -> list[Passage]:
    """Cut a text at its section titles.

    A directive or a literal block stays whole with what introduces it, if it fits.
    """
    return chunk_markdown(ruler, read_blocks(ruler.text))


def read_blocks(text: str) -> list[Block]:
    """The blocks of a text: titles with their levels, paragraphs, and what is indented below them.

    A title is adorned by a line of one sign under it, or over and under it; levels are counted in
    the order in which adornments appear.

    Raises:
        Unstructured: if there are too many blocks.
    """
    levels: dict[tuple[str, bool], int] = {}
    blocks: list[Block] = []
    for start, end in boundaries.line_groups(text, 0, len(text)):
        if len(blocks) > MOST_BLOCKS:
            raise Unstructured(f"more than {MOST_BLOCKS} blocks")
        rest = start
        for first, last, title, style in _titles(text, start, end):
            blocks += _body(text, rest, first)
            level = levels.setdefault(style, len(levels) + 1)
            blocks.append(Block("heading_open", first, last, level, clipped(title)))
            rest = last
        indented = rest == start and text[start] in " \t"
        if indented and blocks and _introduces(text, blocks[-1]):
            blocks[-1] = Block("code_block", blocks[-1].start, end)
        else:
            blocks += _body(text, rest, end)
    return blocks


def _body(text: str, start: int, end: int) -> list[Block]:
    first, last = boundaries.trim_lines(text, start, end)
    return [Block("paragraph_open", first, last)] if first < last else []


def _introduces(text: str, block: Block) -> bool:
    """Whether what is indented below a block belongs to it: a directive, or ``::`` at its end."""
    if block.kind == "code_block":
        return True
    if block.level:
        return False
    return text.startswith(".. ", block.start) or text.endswith("::", block.start, block.end)


def _titles(text: str, start: int, end: int) -> Iterator[tuple[int, int, str, tuple[str, bool]]]:
    """Titles within lines that no blank line parts: span, words, adornment."""
    lines = list(boundaries.lines(text, start, end))
    index = 0
    while index + 1 < len(lines):
        over, here = _adornment(text, lines[index]), lines[index + 1]
        under = _adornment(text, lines[index + 2]) if over and index + 2 < len(lines) else ""
        if over and over == under and not _adornment(text, here):
            yield lines[index][0], lines[index + 2][1], text[slice(*here)].strip(), (over[0], True)
            index += 3
            continue
        under = _adornment(text, here)
        title = text[slice(*lines[index])]
        if under and not over and title[0] not in " \t" and _long_enough(under, title):
            yield lines[index][0], here[1], title.strip(), (under[0], False)
            index += 2
            continue
        index += 1


def _adornment(text: str, line: tuple[int, int]) -> str:
    """The line if it consists of one sign, repeated; else nothing."""
    words = text[slice(*line)]
    return words.rstrip() if _ADORNMENT.fullmatch(words) else ""


def _long_enough(adornment: str, title: str) -> bool:
    return len(adornment) >= min(len(title.rstrip()), _SHORTEST)
