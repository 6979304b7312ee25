"""The ``sliding-window`` strategy: windows of equal length, each repeating the end of the last."""

from __future__ import annotations

from collections.abc import Iterator

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.chunk_packing import Packed, Passages, Ruler


def chunk_windows(ruler: Ruler, overlap: int) -> list[Passage]:
    """Cut a text into windows.

    Windows begin and end between words where there are any, else at the edges of words and
    punctuation, else between signs. At most ``overlap`` tokens are repeated; each window has
    something that the one before it has not.
    """
    passages = Passages(ruler)
    return [passages.make(window) for window in _windows(ruler, overlap)]


def _windows(ruler: Ruler, overlap: int) -> Iterator[Packed]:
    start, last = boundaries.trim(ruler.text, 0, len(ruler.text))
    if start == last:
        return
    window = _window(ruler, start, last)
    yield window
    while (fresh := boundaries.skip_space(ruler.text, window.end, last)) < last:
        begin = _repeat_from(ruler, window, overlap)
        following = _window(ruler, begin, last) if begin < window.end else None
        # Repeating is worth nothing if no room is left for what comes after.
        if following is None or following.end <= fresh:
            following = _window(ruler, fresh, last)
        window = following
        yield window


def _window(ruler: Ruler, start: int, last: int) -> Packed:
    """The longest window that begins at ``start``, without space at its end."""
    text = ruler.text
    limit = min(last, max(start + 1, ruler.furthest(start, ruler.max_tokens)))
    while True:
        end = limit if limit == last else boundaries.cut_before(text, start, limit)
        end = boundaries.trim(text, start, end)[1]
        tokens, kept = ruler.overrun(start, end)
        if kept >= 1 or end == start + 1:
            return Packed(start, end, tokens, ())
        limit = max(start + 1, min(end - 1, start + int((end - start) * kept)))


def _repeat_from(ruler: Ruler, window: Packed, overlap: int) -> int:
    """Where the next window begins within this one; its end if nothing can be repeated."""
    earliest = max(window.start + 1, ruler.earliest(window.end, overlap))
    if earliest >= window.end:
        return window.end
    begin = boundaries.cut_after(ruler.text, earliest, window.end)
    return boundaries.skip_space(ruler.text, begin, window.end)
