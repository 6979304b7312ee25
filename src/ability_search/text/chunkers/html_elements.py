"""HTML: cut before the elements that begin a block."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import BLOCK, PROSE, Cut, Ruler
from ability_search.text.chunkers.paragraphs import chunk_by

_BLOCK_TAG = re.compile(
    r"<(?:address|article|aside|blockquote|body|details|div|dl|dt|fieldset|figure|footer|form"
    r"|h[1-6]|header|head|hr|li|main|nav|ol|p|pre|script|section|style|table|tbody|tfoot|thead|tr"
    r"|ul)\b",
    re.IGNORECASE,
)


def chunk_html(ruler: Ruler) -> list[Passage]:
    """Cut HTML before opening tags of block elements, else as prose. Tags stay in the text."""
    return chunk_by(ruler, (Cut(BLOCK, _blocks), *PROSE))


def _blocks(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    tags = _BLOCK_TAG.finditer(ruler.text, start, end)
    return boundaries.between(ruler.text, start, end, (tag.start() for tag in tags))
