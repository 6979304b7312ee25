"""Markdown: the strategies ``markdown-headers`` (by heading) and ``code-blocks`` (by fence)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import (
    BLOCK,
    BY_BLANK_LINES,
    BY_PARAGRAPH,
    GLUE,
    PROSE,
    Packed,
    Ruler,
    Unit,
    cut_unit,
    pack,
)
from ability_search.text.chunkers.markdown_blocks import VERBATIM_KINDS, Block, Fence

SEPARATOR = " > "
_CONTEXT_SENTENCES = 2
_CONTEXT_PART = 4
_NO_CONTEXT = frozenset({"fence", "heading_open", "definition", "hr"})


Section = tuple[str, list[Block]]
"""The path of a heading, and the heading with the blocks below it."""


def chunk_sections(
    ruler: Ruler, blocks: Sequence[Block], fences: Sequence[Fence] = ()
) -> list[Passage]:
    """Cut a text that consists of ``blocks`` at its headings.

    Each section is chunked separately, with its path of headings as breadcrumb. Sections are never
    merged, however short: a query may match the breadcrumb. Only a heading followed directly by a
    deeper heading shares the passage of that heading. Text before the first heading has no
    breadcrumb. A long section is cut between blocks, then items, sentences, lines, words and
    characters; a fence or table that fits into a chunk stays whole. A longer fence is cut at
    blank lines before unindented lines, and its passages have its language. Every passage of a
    longer table begins with the table's header.
    """
    for block in blocks:
        if block.kind == "table_open" and not ruler.fits(block.start, block.end):
            _repeat_header(ruler, block)
    return [
        ruler.passage(packed, breadcrumb=breadcrumb, language=_language(fences, packed))
        for breadcrumb, section in _sections(blocks)
        for packed in pack(ruler, _units(ruler, section))
    ]


def _language(fences: Sequence[Fence], packed: Packed) -> str | None:
    """Return the language of the fence that a chunk is part of; ``None`` if there is none."""
    place = bisect_right(fences, packed.start, key=attrgetter("start")) - 1
    is_part = place >= 0 and packed.end <= fences[place].end
    return fences[place].language if is_part else None


def _repeat_header(ruler: Ruler, table: Block) -> None:
    header, dashes = islice(boundaries.lines(ruler.text, table.start, table.end), 2)
    names = "\n".join(ruler.text[start:end] for start, end in (header, dashes))
    ruler.add_preface(dashes[1], table.end, f"{names}\n")


def _sections(blocks: Sequence[Block]) -> Iterator[Section]:
    """Group blocks by heading, in order; levels may be skipped."""
    path: list[tuple[int, str]] = []
    current: list[Block] = []
    for block in blocks:
        if block.level:
            bare = bool(current) and all(each.level for each in current)
            if current and not (bare and block.level > current[-1].level):
                yield _breadcrumb(path), current
                current = []
            while path and path[-1][0] >= block.level:
                path.pop()
            path.append((block.level, block.title))
        current.append(block)
    if current:
        yield _breadcrumb(path), current


def _breadcrumb(path: Sequence[tuple[int, str]]) -> str:
    return SEPARATOR.join(title for _, title in path if title)


def _units(ruler: Ruler, blocks: Sequence[Block]) -> Iterator[Unit]:
    headings_start: int | None = None
    for block in blocks:
        rank = BLOCK if headings_start is None else GLUE
        unit = Unit(block.start, block.end, rank, block.cuts())
        if block.level or headings_start is None or block.kind in VERBATIM_KINDS:
            yield unit
        else:
            yield from _following(ruler, headings_start, unit)
        if not block.level:
            headings_start = None
        elif headings_start is None:
            headings_start = block.start


def _following(ruler: Ruler, start: int, unit: Unit) -> list[Unit]:
    """Cut a unit so that its beginning fits into one chunk with the heading at ``start``."""
    leaves_room = ruler.estimate(start, unit.start) <= ruler.max_tokens // 2
    if not leaves_room or not unit.cuts or ruler.fits(start, unit.end):
        return [unit]
    first, *rest = cut_unit(ruler, unit)
    return [*_following(ruler, start, first), *rest]


def chunk_fences(
    ruler: Ruler, blocks: Sequence[Block], fences: Sequence[Fence]
) -> Iterator[Passage]:
    """Cut a Markdown text into its fences and the prose between them.

    A passage keeps the markers of its fence and has its ``language``. Its ``context`` is the last
    two sentences of the preceding prose in the same section, whitespace collapsed, at most a
    quarter of the maximum tokens (not counted in ``tokens``). A fence that exceeds a chunk is cut
    at blank lines; every part has the language and the context. Prose is cut into paragraphs.
    """
    coming = iter((*fences, None))
    fence = next(coming)
    for breadcrumb, section in _sections(blocks):
        at, end = section[0].start, section[-1].end
        rest = iter(section)
        block, prose = next(rest, None), None
        while fence is not None and fence.start < end:
            while block is not None and block.start < fence.start:
                prose = block if block.kind not in _NO_CONTEXT else prose
                block = next(rest, None)
            for packed in pack(ruler, _prose(ruler, at, fence.start)):
                yield ruler.passage(packed, breadcrumb=breadcrumb)
            context = _context(ruler, prose, at, fence.start) if prose else ""
            for packed in pack(ruler, [Unit(fence.start, fence.end, BLOCK, BY_BLANK_LINES)]):
                yield ruler.passage(
                    packed, breadcrumb=breadcrumb, context=context, language=fence.language
                )
            at = fence.end
            fence = next(coming)
        for packed in pack(ruler, _prose(ruler, at, end)):
            yield ruler.passage(packed, breadcrumb=breadcrumb)


def _prose(ruler: Ruler, start: int, end: int) -> list[Unit]:
    first, last = boundaries.trim_lines(ruler.text, start, end)
    return [Unit(first, last, BLOCK, (BY_PARAGRAPH, *PROSE))] if first < last else []


def _context(ruler: Ruler, prose: Block, done: int, fence_start: int) -> str:
    """Return the last sentences of ``prose`` between the offsets ``done`` and ``fence_start``."""
    start = done if prose.start < done < prose.end else prose.start
    *_, last = (None, *boundaries.paragraphs(ruler.text, start, min(prose.end, fence_start)))
    if last is None:
        return ""
    room = ruler.max_tokens // _CONTEXT_PART
    sentences: list[Span] = list(boundaries.sentences(ruler.text, *last))[-_CONTEXT_SENTENCES:]
    while len(sentences) > 1 and ruler.estimate(sentences[0][0], last[1]) > room:
        del sentences[0]
    begin = sentences[0][0]
    earliest = ruler.earliest(last[1], room)
    if begin < earliest:
        begin = boundaries.cut_after(ruler.text, earliest, last[1])
    return " ".join(ruler.text[begin : last[1]].split())
