"""Fills chunks: spans of a text are put together up to a limit, and cut finer where one exceeds it.

A strategy says what the units of a text are and how each may be cut further. Packing goes through
them once. A chunk ends at the coarsest boundary in its second half, so that a paragraph is not
torn to fill the chunk before it, and at the latest one among equals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ability_search.documents import Passage
from ability_search.errors import TooLarge
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Lines, Span
from ability_search.text.token_counter import TokenCounter

CHARS_PER_TOKEN = 10
"""No chunk has more characters than this for each token it may have.

A word its vocabulary cannot spell is one token to WordPiece, and whitespace is none, however long;
prose has three to five characters a token.
"""

# Boundaries from coarse to fine. Structure deeper than a block counts up from ITEM.
BLOCK = 0
ITEM = 1
SENTENCE = 100
LINE = 101
WORD = 102
FRAGMENT = 103
GLUE = 200
"""Before what belongs to the unit in front of it, such as the text under a heading."""

_FRAGMENTS_PER_CHUNK = 8
_PACKED_UNITS = 1024
"""Units of finished chunks that are kept before they are forgotten together."""
LONGEST_NAME = 300
"""Characters of a heading, symbol or key within a breadcrumb; every chunk below repeats it."""
_LONGEST_BREADCRUMB = 1000


class Unstructured(Exception):
    """The structure of a text cannot be read within bounds; the message says why."""


class Ruler:
    """Lengths within one text, measured once.

    ``fits`` and ``furthest`` go by the tokens of the whole text, which is exact wherever no word is
    cut; ``count`` counts what is cut out.
    """

    def __init__(
        self,
        text: str,
        counter: TokenCounter,
        max_tokens: int,
        *,
        max_passages: int | None = None,
    ) -> None:
        self.text = text
        self.max_passages = max_passages
        """How many passages the text may become; ``None`` for any number."""
        self.max_tokens = max_tokens
        self.max_chars = max_tokens * CHARS_PER_TOKEN
        self._counter = counter
        self._sums = counter.cumulative(text)

    def estimate(self, start: int, end: int) -> int:
        """Tokens from ``start`` to ``end`` by the sums over the whole text."""
        return int(self._sums[end] - self._sums[start])

    def fits(self, start: int, end: int) -> bool:
        """Whether a chunk may hold this span, as far as the sums tell."""
        return end - start <= self.max_chars and self.estimate(start, end) <= self.max_tokens

    def furthest(self, start: int, tokens: int) -> int:
        """The last offset that a span from ``start`` with so many tokens may end at."""
        end = int(np.searchsorted(self._sums, self._sums[start] + tokens, side="right")) - 1
        return max(start, min(end, start + tokens * CHARS_PER_TOKEN))

    def earliest(self, end: int, tokens: int) -> int:
        """The first offset that a span up to ``end`` with so many tokens may begin at."""
        start = int(np.searchsorted(self._sums, self._sums[end] - tokens, side="left"))
        return min(end, max(start, end - tokens * CHARS_PER_TOKEN))

    def count(self, start: int, end: int) -> int:
        """Tokens of the span when it stands alone."""
        if end - start == len(self.text):
            return self.estimate(start, end)
        return self._counter.count(self.text[start:end])

    def overrun(self, start: int, end: int) -> tuple[int, float]:
        """The count of the span, and the part of it that may be kept (at least 1 if it fits)."""
        tokens = self.count(start, end)
        room = self.max_chars / max(1, end - start)
        return tokens, min(room, self.max_tokens / tokens if tokens else room)


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut a span finer, and how coarse the boundaries are that it makes."""

    rank: int
    spans: Callable[[Ruler, int, int], Iterable[Span]]


class Unit(NamedTuple):
    """A span that stays whole if it fits; ``cuts`` are tried in turn if it does not.

    A tuple and no dataclass: a megabyte of words makes 200,000 of them.
    """

    start: int
    end: int
    rank: int
    cuts: tuple[Cut, ...]
    path: tuple[str, ...] = ()
    """Names of what it lies in, outermost first."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A chunk: its span, its tokens, and the path that all of its units share."""

    start: int
    end: int
    tokens: int
    path: tuple[str, ...]


def fragments(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    """Parts of an unbroken run, small enough to fill a chunk well with several of them."""
    size = max(1, ruler.max_tokens // _FRAGMENTS_PER_CHUNK)
    while start < end:
        limit = min(end, max(start + 1, ruler.furthest(start, size)))
        cut = limit if limit == end else boundaries.cut_before(ruler.text, start, limit)
        if not boundaries.is_sign_edge(ruler.text, cut, start):
            # One sign is longer than a fragment: it stays whole as far as a chunk can hold it.
            furthest = min(end, max(cut, ruler.furthest(start, ruler.max_tokens)))
            cut = boundaries.sign_after(ruler.text, start, cut, furthest)
        yield start, cut
        start = cut


def _of_text(spans: Callable[[str, int, int], Iterable[Span]]) -> Callable[..., Iterable[Span]]:
    return lambda ruler, start, end: spans(ruler.text, start, end)


BY_PARAGRAPH = Cut(BLOCK, _of_text(boundaries.paragraphs))
BY_SENTENCE = Cut(SENTENCE, _of_text(boundaries.sentences))
BY_LINE = Cut(LINE, _of_text(boundaries.lines))
BY_WORD = Cut(WORD, _of_text(boundaries.words))
BY_FRAGMENT = Cut(FRAGMENT, fragments)

PROSE = (BY_SENTENCE, BY_LINE, BY_WORD, BY_FRAGMENT)
VERBATIM = (BY_LINE, BY_WORD, BY_FRAGMENT)


def pack(ruler: Ruler, units: Iterable[Unit]) -> Iterator[Packed]:
    """Put units together into chunks, never across a form feed, which ends a page.

    Args:
        ruler: measures the text and knows the limit.
        units: in order, not overlapping, none blank.

    Yields:
        Chunks in order. None counts more than the limit, except a single character that alone
        does (a tokenizer may spell one character with several tokens).
    """
    parts = (part for unit in units for part in _flatten(ruler, unit))
    for page in _pages(ruler.text, parts):
        yield from _fill(ruler, page)


def _pages(text: str, units: Iterator[Unit]) -> Iterator[Iterable[Unit]]:
    """The units between one form feed and the next."""
    if "\f" not in text:
        yield units
        return
    page, end = 0, 0

    def number(unit: Unit) -> int:
        nonlocal page, end
        page += text.count("\f", end, unit.start)
        end = unit.end
        return page

    for _, group in groupby(units, number):
        yield group


def _fill(ruler: Ruler, units: Iterable[Unit]) -> Iterator[Packed]:
    """Fill chunks; of the units no more are held than one chunk may take, and some."""
    coming = iter(units)
    queue: list[Unit] = []
    ends: list[int] = []
    at = 0
    while True:
        if at == len(queue) or ends[-1] <= queue[at].start + ruler.max_chars:
            for unit in coming:
                queue.append(unit)
                ends.append(unit.end)
                if unit.end > queue[at].start + ruler.max_chars:
                    break
        if at == len(queue):
            return
        start = queue[at].start
        stop = _choose(ruler, queue, ends, at)
        tokens, kept = ruler.overrun(start, ends[stop - 1])
        while kept < 1 and stop > at + 1:
            # Counted alone, the span is longer than within its text: give back as much as is over.
            stop = at + max(1, min(stop - at - 1, int((stop - at) * kept)))
            tokens, kept = ruler.overrun(start, ends[stop - 1])
        if kept < 1 and ends[at] - start > 1:
            yield from _fill(ruler, _refine(ruler, queue[at]))
        else:
            yield Packed(start, ends[stop - 1], tokens, _common_path(queue[at:stop]))
        at = stop
        if at > _PACKED_UNITS:
            del queue[:at], ends[:at]
            at = 0


def _choose(ruler: Ruler, queue: Sequence[Unit], ends: Sequence[int], at: int) -> int:
    """Index after the last unit of the chunk that begins with unit ``at``."""
    start = queue[at].start
    stop = max(at + 1, bisect_right(ends, ruler.furthest(start, ruler.max_tokens), lo=at))
    if stop == len(queue) or stop == at + 1:
        return stop
    half = ruler.furthest(start, ruler.max_tokens // 2)
    best = stop
    for index in range(stop - 1, at, -1):
        too_early = ends[index - 1] < half
        if too_early and queue[best].rank != GLUE:
            break
        if queue[index].rank < queue[best].rank:
            best = index
        if queue[best].rank == BLOCK:
            break
    return best


def _flatten(ruler: Ruler, unit: Unit) -> Iterator[Unit]:
    """The unit, or the parts it must be cut into to fit."""
    if ruler.fits(unit.start, unit.end) or not unit.cuts:
        yield unit
        return
    for part in cut_unit(ruler, unit):
        yield from _flatten(ruler, part)


def cut_unit(ruler: Ruler, unit: Unit) -> Iterator[Unit]:
    """The parts that the first of its cuts makes of a unit; the others are left to them."""
    cut, finer = unit.cuts[0], unit.cuts[1:]
    rank = unit.rank
    for start, end in cut.spans(ruler, unit.start, unit.end):
        yield Unit(start, end, rank, finer, unit.path)
        rank = cut.rank


def _refine(ruler: Ruler, unit: Unit) -> list[Unit]:
    """Two or more parts of a unit that turned out too long; it has at least two characters."""
    while unit.cuts:
        parts = list(cut_unit(ruler, unit))
        if len(parts) > 1:
            return [fitting for part in parts for fitting in _flatten(ruler, part)]
        unit = parts[0]
    middle = (unit.start + unit.end) // 2
    cut = boundaries.sign_before(ruler.text, unit.start, middle)
    if cut == unit.start:
        cut = boundaries.sign_after(ruler.text, unit.start, middle, unit.end)
    if cut == unit.end:
        cut = middle
    return [unit._replace(end=cut), unit._replace(start=cut, rank=FRAGMENT)]


def _common_path(units: Sequence[Unit]) -> tuple[str, ...]:
    path = units[0].path
    for unit in units[1:]:
        if unit.path != path:
            shared = 0
            while shared < min(len(path), len(unit.path)) and path[shared] == unit.path[shared]:
                shared += 1
            path = path[:shared]
    return path


def clipped(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name for a breadcrumb, cut where it is too long for one."""
    return name if len(name) <= longest else name[: longest - 1] + "\u2026"


class Passages:
    """Makes passages of one text from packed chunks, as many as ``ruler`` allows."""

    def __init__(self, ruler: Ruler) -> None:
        self.text = ruler.text
        self.lines = Lines(ruler.text)
        self._most = ruler.max_passages
        self._made = 0

    def make(
        self,
        packed: Packed,
        *,
        breadcrumb: str = "",
        context: str = "",
        language: str | None = None,
    ) -> Passage:
        """Return the passage of a chunk, with its lines.

        Raises:
            TooLarge: if it is one more than allowed.
        """
        self._made += 1
        if self._most is not None and self._made > self._most:
            raise TooLarge(
                f"content: more than the {self._most} chunks that a document may have"
                " (max_document_chunks)",
                hint="Split the document, or cut it into larger chunks (setting chunk_size).",
            )
        return Passage(
            content=self.text[packed.start : packed.end],
            start=packed.start,
            end=packed.end,
            tokens=packed.tokens,
            start_line=self.lines.number(packed.start),
            end_line=self.lines.number(packed.end - 1),
            breadcrumb=clipped(breadcrumb, _LONGEST_BREADCRUMB),
            context=context,
            language=language,
        )
