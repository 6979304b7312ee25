"""The ``paragraph`` strategy: short paragraphs together, long ones cut at sentences."""

from __future__ import annotations

from ability_search.documents import Passage
from ability_search.text.chunkers.chunk_packing import (
    BY_PARAGRAPH,
    PROSE,
    Cut,
    Passages,
    Ruler,
    Unit,
    pack,
)


def chunk_paragraphs(ruler: Ruler) -> list[Passage]:
    """Cut a text at its blank lines.

    Paragraphs that fit into one chunk together are merged; one that is too long is cut at
    sentences, then lines, words and signs.
    """
    return chunk_by(ruler, (BY_PARAGRAPH, *PROSE))


def chunk_by(ruler: Ruler, cuts: tuple[Cut, ...]) -> list[Passage]:
    """Cut a text by the first of ``cuts``, and what is too long by the following ones."""
    passages = Passages(ruler)
    first, *finer = cuts
    units = (
        Unit(start, end, first.rank, tuple(finer))
        for start, end in first.spans(ruler, 0, len(ruler.text))
    )
    return [passages.make(packed) for packed in pack(ruler, units)]
