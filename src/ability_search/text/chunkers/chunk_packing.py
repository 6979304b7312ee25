"""Packing of text units into chunks up to a limit; a unit over the limit is cut finer.

A strategy defines the units of a text and the ways to cut each one further. Packing visits them
once, in order. A chunk ends at the coarsest boundary in its second half, the latest of equals, so
that no paragraph is split only to fill the previous chunk.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ability_search.documents import Passage
from ability_search.errors import TooLarge
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Lines, Span
from ability_search.text.token_counter import TokenCounter

CHARS_PER_TOKEN = 10
"""Maximum characters of a chunk per token of its limit.

WordPiece counts whitespace as no token, however long. Prose has three to five characters per token.
"""

# Ranks of boundaries, coarse to fine. Structure below a block has ranks from ITEM up.
BLOCK = 0
ITEM = 1
SENTENCE = 100
LINE = 101
WORD = 102
FRAGMENT = 103
GLUE = 200
"""Before a unit that belongs to the previous one, such as the text below a heading."""

_FRAGMENTS_PER_CHUNK = 8
_PACKED_UNITS = 1024
"""Units of finished chunks to keep before deleting them together."""
LONGEST_NAME = 300
"""Maximum characters of a heading, symbol or key in a breadcrumb, which every chunk repeats."""
_LONGEST_BREADCRUMB = 1000


class Unstructured(Exception):
    """The structure of a text cannot be read within bounds; the message is the reason."""


class Ruler:
    """The lengths within one text, measured once, the limits of its chunks, and its passages.

    ``estimate``, ``fits``, ``furthest`` and ``earliest`` use the tokens of the whole text, which is
    exact unless a word is cut; ``overrun`` tokenizes the span alone, with its preface.
    """

    def __init__(
        self,
        text: str,
        counter: TokenCounter,
        max_tokens: int,
        *,
        overlap: int = 0,
        turns: Sequence[int] = (),
        max_passages: int | None = None,
        above: str = "",
    ) -> None:
        self.text = text
        self._origin = len(above)
        """Offset of the text in the document, below what is in no passage."""
        self._lines = Lines(text)
        self._lines_above = Lines(above).number(len(above)) - 1 if above else 0
        self._most_passages = max_passages
        self._passages = 0
        self.max_tokens = max_tokens
        self.overlap = overlap
        """Maximum tokens that a sliding window repeats of the previous one."""
        self.max_chars = max_tokens * CHARS_PER_TOKEN
        self._counter = counter
        # bisect keeps the interpreter lock: whoever releases it for microseconds, thousands of
        # times, as searches in numpy do, keeps other threads from ever getting it.
        self._sums: Sequence[int] = counter.cumulative(text)  # type: ignore[assignment]
        self._prefaces: list[tuple[int, int, str, int]] = []
        self._turns = turns
        """Offsets at which a passage ends, in order."""

    def turns_before(self, offset: int) -> int:
        """Return the number of offsets at or before this one at which a passage ends."""
        return bisect_right(self._turns, offset)

    def add_preface(self, start: int, end: int, preface: str) -> None:
        """Repeat a text before each passage that begins from ``start`` to before ``end``.

        Spans are added in order. A text that needs more than half of a passage is ignored.
        """
        tokens = self._counter.count(preface)
        if max(tokens, len(preface) / CHARS_PER_TOKEN) <= self.max_tokens / 2:
            self._prefaces.append((start, end, preface, tokens))

    def preface(self, start: int) -> tuple[str, int]:
        """Return the text to repeat before a passage that begins at ``start``, and its tokens.

        It is usually empty.
        """
        place = bisect_right(self._prefaces, start, key=itemgetter(0)) - 1
        if place >= 0 and start < self._prefaces[place][1]:
            return self._prefaces[place][2:]
        return "", 0

    def room(self, start: int) -> int:
        """Return the maximum tokens of a passage that begins at ``start``, without its preface."""
        return self.max_tokens - self.preface(start)[1]

    def estimate(self, start: int, end: int) -> int:
        """Return the tokens from ``start`` to ``end`` by the sums over the whole text."""
        return int(self._sums[end] - self._sums[start])

    def fits(self, start: int, end: int) -> bool:
        """Return whether the span fits into a chunk, by the sums over the whole text."""
        preface, tokens = self.preface(start)
        turns = self._turns and self.turns_before(start) < self.turns_before(end - 1)
        fits = end - start + len(preface) <= self.max_chars and not turns
        return fits and self.estimate(start, end) + tokens <= self.max_tokens

    def furthest(self, start: int, tokens: int) -> int:
        """Return the last offset at which a span from ``start`` has at most ``tokens`` tokens."""
        last = min(len(self.text), start + tokens * CHARS_PER_TOKEN)
        most = int(self._sums[start]) + tokens
        return max(start, bisect_right(self._sums, most, start, last + 1) - 1)

    def earliest(self, end: int, tokens: int) -> int:
        """Return the first offset from which a span to ``end`` has at most ``tokens`` tokens."""
        first = max(0, end - tokens * CHARS_PER_TOKEN)
        return min(end, bisect_left(self._sums, int(self._sums[end]) - tokens, first, end + 1))

    def overrun(self, start: int, end: int) -> tuple[int, float]:
        """Return the tokens of the span, and the share of it that fits (1 or more if all of it)."""
        preface, _ = self.preface(start)
        whole = end - start == len(self.text) and not preface
        tokens = (
            self.estimate(start, end)
            if whole
            else self._counter.count(preface + self.text[start:end])
        )
        room = self.max_chars / max(1, len(preface) + end - start)
        return tokens, min(room, self.max_tokens / tokens if tokens else room)

    def passage(
        self,
        packed: Packed,
        *,
        breadcrumb: str = "",
        context: str = "",
        language: str | None = None,
    ) -> Passage:
        """Return the passage of a chunk, with its line numbers.

        Raises:
            TooLarge: if the text has more than the maximum number of passages.
        """
        self._passages += 1
        if self._most_passages is not None and self._passages > self._most_passages:
            raise TooLarge(
                f"content: more than the {self._most_passages} chunks that a document may have"
                " (max_document_chunks)",
                hint="Split the document, or cut it into larger chunks (setting chunk_size).",
            )
        preface, _ = self.preface(packed.start)
        return Passage(
            content=preface + self.text[packed.start : packed.end],
            start=self._origin + packed.start,
            end=self._origin + packed.end,
            tokens=packed.tokens,
            start_line=self._lines_above + self._lines.number(packed.start),
            end_line=self._lines_above + self._lines.number(packed.end - 1),
            breadcrumb=clipped(breadcrumb, _LONGEST_BREADCRUMB),
            context=context,
            language=language,
            preface=len(preface),
        )


@dataclass(frozen=True, slots=True)
class BreakPoint:
    """A way to cut a span finer, and the rank of the boundaries between its parts."""

    rank: int
    spans: Callable[[Ruler, int, int], Iterable[Span]]


class Unit(NamedTuple):
    """A span that stays whole if it fits; otherwise ``cuts`` are tried in order.

    A named tuple, because a megabyte of words gives 200,000 units.
    """

    start: int
    end: int
    rank: int
    cuts: tuple[BreakPoint, ...]
    path: tuple[str, ...] = ()
    """Names of the enclosing elements, outermost first."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A chunk: its span, its tokens, and the common path of its units."""

    start: int
    end: int
    tokens: int
    path: tuple[str, ...]


def fragments(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    """Yield the parts of an unbroken run, small enough for several to fill a chunk well."""
    size = max(1, ruler.max_tokens // _FRAGMENTS_PER_CHUNK)
    while start < end:
        limit = min(end, max(start + 1, ruler.furthest(start, size)))
        cut = limit if limit == end else boundaries.cut_before(ruler.text, start, limit)
        if not boundaries.is_grapheme_edge(ruler.text, cut, start):
            # One grapheme is longer than a fragment: keep it whole as far as a chunk can hold it.
            furthest = min(end, max(cut, ruler.furthest(start, ruler.max_tokens)))
            cut = boundaries.grapheme_after(ruler.text, start, cut, furthest)
        yield start, cut
        start = cut


def _of_text(spans: Callable[[str, int, int], Iterable[Span]]) -> Callable[..., Iterable[Span]]:
    return lambda ruler, start, end: spans(ruler.text, start, end)


BY_PARAGRAPH = BreakPoint(BLOCK, _of_text(boundaries.paragraphs))
BY_SENTENCE = BreakPoint(SENTENCE, _of_text(boundaries.sentences))
BY_LINE = BreakPoint(LINE, _of_text(boundaries.lines))
BY_WORD = BreakPoint(WORD, _of_text(boundaries.words))
BY_FRAGMENT = BreakPoint(FRAGMENT, fragments)

PROSE = (BY_SENTENCE, BY_LINE, BY_WORD, BY_FRAGMENT)
VERBATIM = (BY_LINE, BY_WORD, BY_FRAGMENT)

TOP_LEVEL = re.compile(r"(?:\r\n?+|\n)[^\S\r\n]*+(?:\r\n?+|\n)(?=[^\s)\]}])")
"""Matches to the end of a blank line above an unindented line other than a closing bracket."""


def _top_level(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    """Yield the blocks between blank lines before an unindented line other than a bracket."""
    cuts = (match.end() for match in TOP_LEVEL.finditer(ruler.text, start, end))
    return boundaries.lines_between(ruler.text, start, end, cuts)


BY_BLANK_LINES = (
    BreakPoint(BLOCK, _top_level),
    BreakPoint(ITEM, _of_text(boundaries.line_groups)),
    *VERBATIM,
)


def pack(ruler: Ruler, units: Iterable[Unit]) -> Iterator[Packed]:
    """Pack units into chunks, never across a turn, or a form feed, which ends a page.

    Args:
        ruler: Measures the text and has the limit.
        units: In order, without overlap, none of them blank.

    Yields:
        Chunks in order. None has more tokens than the limit, except a single character that the
        tokenizer encodes as several tokens.
    """
    parts = (part for unit in units for part in _flatten(ruler, unit))
    for page in _pages(ruler, parts):
        yield from _fill(ruler, page)


def _pages(ruler: Ruler, units: Iterator[Unit]) -> Iterator[Iterable[Unit]]:
    """Yield the units between one form feed or turn and the next."""
    text = ruler.text
    if "\f" not in text and not ruler.turns_before(len(text)):
        yield units
        return
    page, end = 0, 0

    def number(unit: Unit) -> tuple[int, int]:
        nonlocal page, end
        page += text.count("\f", end, unit.start)
        end = unit.end
        return page, ruler.turns_before(unit.start)

    for _, group in groupby(units, number):
        yield group


def _fill(ruler: Ruler, units: Iterable[Unit]) -> Iterator[Packed]:
    """Yield chunks; hold hardly more units in memory than one chunk can take."""
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
            # Alone, the span has more tokens than within its text: remove a share of the units.
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
    """Return the index after the last unit of the chunk that begins with unit ``at``."""
    start = queue[at].start
    stop = max(at + 1, bisect_right(ends, ruler.furthest(start, ruler.room(start)), lo=at))
    if stop == len(queue) or stop == at + 1:
        return stop
    half = ruler.furthest(start, ruler.room(start) // 2)
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
    """Yield the unit, or the parts into which it must be cut to fit."""
    if ruler.fits(unit.start, unit.end) or not unit.cuts:
        yield unit
        return
    for part in cut_unit(ruler, unit):
        yield from _flatten(ruler, part)


def cut_unit(ruler: Ruler, unit: Unit) -> Iterator[Unit]:
    """Yield the parts of a unit by its first cut; they keep its other cuts."""
    cut, finer = unit.cuts[0], unit.cuts[1:]
    rank = unit.rank
    for start, end in cut.spans(ruler, unit.start, unit.end):
        yield Unit(start, end, rank, finer, unit.path)
        rank = cut.rank


def _refine(ruler: Ruler, unit: Unit) -> list[Unit]:
    """Cut a unit that is too long, of at least two characters, into two or more parts."""
    while unit.cuts:
        parts = list(cut_unit(ruler, unit))
        if len(parts) > 1:
            return [fitting for part in parts for fitting in _flatten(ruler, part)]
        unit = parts[0]
    middle = (unit.start + unit.end) // 2
    cut = boundaries.grapheme_before(ruler.text, unit.start, middle)
    if cut == unit.start:
        cut = boundaries.grapheme_after(ruler.text, unit.start, middle, unit.end)
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
    """Return a name for a breadcrumb, cut to ``longest`` characters."""
    return name if len(name) <= longest else name[: longest - 1] + "\u2026"
