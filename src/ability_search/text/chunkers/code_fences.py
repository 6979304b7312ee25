"""The ``code-blocks`` strategy: every fence of a Markdown text is a passage of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import (
    BLOCK,
    BY_PARAGRAPH,
    PROSE,
    VERBATIM,
    Passages,
    Ruler,
    Unit,
    pack,
)
from ability_search.text.chunkers.markdown_sections import (
    SEPARATOR,
    Block,
    Fence,
    Section,
    read_sections,
)

_CONTEXT_SENTENCES = 2
_CONTEXT_PART = 4
_NO_CONTEXT = frozenset({"fence", "heading_open", "front_matter", "definition", "hr"})


def chunk_fences(ruler: Ruler, blocks: Sequence[Block], fences: Sequence[Fence]) -> list[Passage]:
    """Cut a Markdown text into its fences and the prose between them.

    A fence keeps its fence characters and has its ``language``. Its ``context`` is the end of the
    prose before it in the same section: the last two sentences, their whitespace collapsed, of at
    most a quarter of the chunk's tokens (not counted in ``tokens``). A fence that exceeds a chunk
    is cut between lines, and every part has language and context. Prose is cut as paragraphs.
    """
    return list(_passages(ruler, read_sections(blocks), fences))


def _passages(
    ruler: Ruler, sections: Sequence[Section], fences: Sequence[Fence]
) -> Iterator[Passage]:
    passages = Passages(ruler)
    coming = iter((*fences, None))
    fence = next(coming)
    for section in sections:
        breadcrumb = SEPARATOR.join(section.path)
        at, end = section.blocks[0].start, section.blocks[-1].end
        blocks = iter(section.blocks)
        block, prose = next(blocks, None), None
        while fence is not None and fence.start < end:
            while block is not None and block.start < fence.start:
                prose = block if block.kind not in _NO_CONTEXT else prose
                block = next(blocks, None)
            for packed in pack(ruler, _prose(ruler, at, fence.start)):
                yield passages.make(packed, breadcrumb=breadcrumb)
            context = _context(ruler, prose, at, fence.start) if prose else ""
            for packed in pack(ruler, [Unit(fence.start, fence.end, BLOCK, VERBATIM)]):
                yield passages.make(
                    packed, breadcrumb=breadcrumb, context=context, language=fence.language
                )
            at = fence.end
            fence = next(coming)
        for packed in pack(ruler, _prose(ruler, at, end)):
            yield passages.make(packed, breadcrumb=breadcrumb)


def _prose(ruler: Ruler, start: int, end: int) -> list[Unit]:
    first, last = boundaries.trim_lines(ruler.text, start, end)
    return [Unit(first, last, BLOCK, (BY_PARAGRAPH, *PROSE))] if first < last else []


def _context(ruler: Ruler, prose: Block, done: int, fence_start: int) -> str:
    """The last sentences of ``prose``; what is before ``done`` within it is not looked at."""
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
