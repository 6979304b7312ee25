"""reStructuredText: read with its fields, and cut at section titles as Markdown at its headings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ability_search.documents import Passage
from ability_search.extensions.formats.foreign_files import known
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.chunk_packing import Ruler, Unstructured, clipped
from ability_search.text.chunkers.markdown_blocks import MOST_BLOCKS, Block
from ability_search.text.chunkers.markdown_sections import chunk_sections
from ability_search.text.formats import Bounds, Extracted

_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1*[ \t]*")
_HEAD = 8192
"""Characters searched for a title and for fields."""
_FIELD = re.compile(r":(\w[\w -]*):[ \t]+(\S.*)")
_SHORTEST = 4
"""An adornment of this length or more may be shorter than the title."""


def read_restructured(_name: str, text: str, _bounds: Bounds) -> Extracted:
    """Read reStructuredText unchanged, with its bibliographic fields as metadata.

    The title is the first section title. A field list directly below it, or at the very beginning,
    is the metadata (``:Date: 2026-03-01``).
    """
    blocks = read_blocks(text[:_HEAD])
    title = next((block.title for block in blocks if block.level), None)
    body = [block for block in blocks[:2] if not block.level][:1]
    fields = _fields(text[body[0].start : body[0].end]) if body else {}
    return Extracted(text, "rst", title=title, metadata=known(**fields))


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a field list; empty if the block has anything else."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _FIELD.fullmatch(line.rstrip())
        if match is None:
            return {}
        found[match[1].lower().replace(" ", "_")] = match[2]
    return found


def chunk_rst(ruler: Ruler, _language: str | None = None) -> list[Passage]:
    """Cut a text at its section titles.

    A directive or a literal block stays in one piece with its introduction if it fits.
    """
    return chunk_sections(ruler, read_blocks(ruler.text))


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of a text: titles with levels, paragraphs with the indented text below.

    A title has an adornment, a line of one repeated character, below it or above and below it.
    Adornments have levels in the order in which they first appear.

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
    """Return whether indented text below belongs to a block: a directive, or ``::`` at its end."""
    if block.kind == "code_block":
        return True
    if block.level:
        return False
    return text.startswith(".. ", block.start) or text.endswith("::", block.start, block.end)


def _titles(text: str, start: int, end: int) -> Iterator[tuple[int, int, str, tuple[str, bool]]]:
    """Yield start, end, text and adornment of each title in lines without a blank line."""
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
        long_enough = len(under) >= min(len(title.rstrip()), _SHORTEST)
        if under and not over and title[0] not in " \t" and long_enough:
            yield lines[index][0], here[1], title.strip(), (under[0], False)
            index += 2
            continue
        index += 1


def _adornment(text: str, line: tuple[int, int]) -> str:
    """Return the line if it is one repeated character, else an empty string."""
    words = text[slice(*line)]
    return words.rstrip() if _ADORNMENT.fullmatch(words) else ""
