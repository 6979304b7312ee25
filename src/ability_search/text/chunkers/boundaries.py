"""Boundaries in a text: lines, paragraphs, sentences, words and graphemes.

Spans are pairs of character offsets. Unless stated otherwise they have no surrounding whitespace,
come in order, are never blank and never overlap; the text between two spans is whitespace. A
grapheme is a character as a reader sees it, such as an emoji with its skin tone.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

Span = tuple[int, int]

_NEWLINE = re.compile(r"\r\n?|\n")
# A pattern that begins with a set of characters skips megabytes without them in milliseconds. A
# search holds the interpreter lock.
_BLANK_LINES = re.compile(
    r"[\r\n\u2029](?:(?<=\u2029)|(?:(?<=\r)\n)?+(?:[^\S\r\n]*+(?:\r\n?+|\n))++)"
)
_SHOWN = re.compile(r"\S")
_WORD = re.compile(r"\S+")
_PIECE = re.compile(r"\w+[^\w\s]*|[^\w\s]+")

_SPACED = r".!?\u2026"
_UNSPACED = r"\u3002\uff01\uff1f\uff0e\uff61\u061f\u06d4\u0964"
# The second look-behind makes the search try a run of marks once, from its beginning.
_SENTENCE_END = re.compile(
    rf"[{_SPACED}{_UNSPACED}](?:"
    rf"(?<=[{_SPACED}])(?<![{_SPACED}]{{2}})[{_SPACED}]*+[\"'\u2019\u201d\u00bb)\]]*+\s+"
    rf"|(?<=[{_UNSPACED}])[{_UNSPACED}]*+[\u300d\u300f\u2019\u201d\uff09\u3011\u3009\u300b]*+\s*)"
)
_LAST_WORD = re.compile(r"(?<![\w.])[\w.]++\Z")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "al approx bzw ca cf ch dept dr ed eds e.g eq est etc fig figs gen i.e inc jr ltd max min"
        " mr mrs ms no nos nr op p pp prof ref resp sec sr st u.a u.s usw vgl viz vol vs z.b",
    )
)
_LONGEST_ABBREVIATION = max(map(len, _ABBREVIATIONS))


class Lines:
    """Line numbers of a text. CR LF, LF and CR end a line, as in CommonMark."""

    def __init__(self, text: str) -> None:
        ends = (match.end() for match in _NEWLINE.finditer(text))
        self.starts = array("q", chain((0,), ends))
        """Offset at which each line begins; a final newline begins an empty last line."""
        self._length = len(text)

    def number(self, offset: int) -> int:
        """Return the number of the line that contains ``offset``, from 1."""
        return bisect_right(self.starts, offset)

    def offset(self, index: int) -> int:
        """Return the start of a line by its index from 0; the length of the text past the last."""
        return self.starts[index] if index < len(self.starts) else self._length


def trim(text: str, start: int, end: int) -> Span:
    """Return the span without surrounding whitespace; an empty span at ``end`` if it is blank."""
    body = text[start:end]
    kept = body.lstrip()
    return end - len(kept), end - len(kept) + len(kept.rstrip())


def trim_lines(text: str, start: int, end: int) -> Span:
    """Return the span without surrounding blank lines and trailing space, with indentation."""
    first, last = trim(text, start, end)
    indent = first
    while first < last and indent > start and text[indent - 1] in " \t":
        indent -= 1
    at_line_start = indent == 0 or text[indent - 1] in "\r\n"
    return (indent if at_line_start else first), last


def between(
    text: str,
    start: int,
    end: int,
    cuts: Iterable[int],
    *,
    trimmed: Callable[[str, int, int], Span] = trim,
) -> Iterator[Span]:
    """Yield the trimmed spans between ``start``, ``cuts`` (ascending offsets) and ``end``."""
    for cut in chain(cuts, (end,)):
        span = trimmed(text, start, cut)
        if span[0] < span[1]:
            yield span
        start = cut


def lines_between(text: str, start: int, end: int, cuts: Iterable[int]) -> Iterator[Span]:
    """Yield spans as :func:`between` does, trimmed by :func:`trim_lines`."""
    return between(text, start, end, cuts, trimmed=trim_lines)


def paragraphs(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the paragraphs, which blank lines or U+2029 separate."""
    return between(text, start, end, _ends(_BLANK_LINES, text, start, end))


def line_groups(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the groups of lines between blank lines, with the indentation of the first line."""
    return lines_between(text, start, end, _ends(_BLANK_LINES, text, start, end))


def lines(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the lines that are not blank, with their indentation."""
    return lines_between(text, start, end, _ends(_NEWLINE, text, start, end))


def _ends(separator: re.Pattern[str], text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in separator.finditer(text, start, end))


def words(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the words, which whitespace separates."""
    return (match.span() for match in _WORD.finditer(text, start, end))


def sentences(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the sentences, which end with a closing mark.

    A full stop does not end a sentence after an abbreviation, an initial or an ordinal of one or
    two digits, nor before a lower-case letter. Chinese and Japanese marks need no space after them.
    """
    return between(
        text,
        start,
        end,
        (m.end() for m in _SENTENCE_END.finditer(text, start, end) if _ends_sentence(text, m)),
    )


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    if match.end() < len(text) and text[match.end()].islower():
        return False
    if match[0][0] != "." or not match[0][1].isspace():
        return True
    stop = match.start()
    before = _LAST_WORD.search(text[max(0, stop - _LONGEST_ABBREVIATION - 1) : stop])
    if before is None:
        return True
    word = before[0]
    is_initial = len(word) == 1 and word.isupper()
    is_ordinal = len(word) <= 2 and word.isdecimal()
    return not (is_initial or is_ordinal or word.lower() in _ABBREVIATIONS)


def cut_before(text: str, start: int, limit: int) -> int:
    """Return the best place to cut at or before ``limit``, after ``start``.

    Whitespace in the second half if there is any, else the edge of a word, else the edge of a
    grapheme, else (one grapheme fills the span) ``limit``. ``start < limit <= len(text)``.
    """
    if limit == len(text) or text[limit].isspace():
        return limit
    middle = start + (limit - start) // 2
    last_word = text[middle:limit].rsplit(None, 1)[-1:]
    word_start = limit - len(last_word[0]) if last_word and not text[limit - 1].isspace() else limit
    if word_start > middle and text[word_start - 1].isspace():
        return word_start
    for place in (_last_piece(text, middle, limit), limit):
        found = grapheme_before(text, start, place)
        if found > start:
            return found
    return limit


def _last_piece(text: str, middle: int, limit: int) -> int:
    """Return the start of the word or punctuation at ``limit`` if it is after ``middle``."""
    begin = limit
    for match in _PIECE.finditer(text, middle, min(limit + 1, len(text))):
        if match.start() > middle and match.start() <= limit:
            begin = match.start()
    return begin


def cut_after(text: str, start: int, end: int) -> int:
    """Return the start of the first word in the span, else of the next grapheme."""
    if start == 0 or text[start - 1].isspace() or text[start].isspace():
        return start
    rest = text[start:end].split(None, 1)
    if len(rest) == 2:
        return end - len(text[start:end][len(rest[0]) :].lstrip())
    return grapheme_after(text, 0, start, end)


def grapheme_before(text: str, start: int, limit: int) -> int:
    """Return the last edge of a grapheme at or before ``limit``; ``start`` if there is none."""
    place = limit
    while place > start and not is_grapheme_edge(text, place, start):
        place -= 1
    return place


def grapheme_after(text: str, floor: int, start: int, limit: int) -> int:
    """Return the first edge of a grapheme from ``start`` on, at most ``limit``."""
    place = start
    while place < limit and not is_grapheme_edge(text, place, floor):
        place += 1
    return place


def skip_space(text: str, start: int, end: int) -> int:
    """Return the offset of the first character that is not whitespace; ``end`` if none."""
    found = _SHOWN.search(text, start, end)
    return found.start() if found else end


_JOINER = "\u200d"
_REGIONAL = ("\U0001f1e6", "\U0001f1ff")
_LONGEST_FLAG_RUN = 256


def is_grapheme_edge(text: str, place: int, floor: int) -> bool:
    """Return whether a grapheme ends at ``place``.

    After Unicode Annex 29, these are one grapheme: CR LF, a base with its combining marks and
    variation selectors, emoji sequences (joiners, skin tones, tags), the two halves of a flag,
    conjoining jamo, and the two halves of a surrogate pair. ``floor`` is a known edge before
    ``place``, or ``place`` itself.
    """
    if place <= floor or place >= len(text):
        return True
    before, here = text[place - 1], text[place]
    if here < "\u0300":
        return not (before == _JOINER or (before == "\r" and here == "\n"))
    if before == _JOINER or _extends(here):
        return False
    if _REGIONAL[0] <= here <= _REGIONAL[1]:
        return not _is_odd_flag(text, place, floor)
    if "\ud800" <= before <= "\udbff" and "\udc00" <= here <= "\udfff":
        return False
    return not _joins_jamo(before, here)


def _extends(char: str) -> bool:
    return (
        char in (_JOINER, "\u200c")
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or unicodedata.category(char) in ("Mn", "Me", "Mc")
    )


def _is_odd_flag(text: str, place: int, floor: int) -> bool:
    first = place
    lowest = max(floor, place - _LONGEST_FLAG_RUN)
    while first > lowest and _REGIONAL[0] <= text[first - 1] <= _REGIONAL[1]:
        first -= 1
    return (place - first) % 2 == 1


def _joins_jamo(before: str, here: str) -> bool:
    if "\u1160" <= here <= "\u11a7":
        return "\u1100" <= before <= "\u11a7" or _is_open_syllable(before)
    if "\u11a8" <= here <= "\u11ff":
        return "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    return "\u1100" <= here <= "\u115f" and "\u1100" <= before <= "\u115f"


def _is_open_syllable(char: str) -> bool:
    return "\uac00" <= char <= "\ud7a3" and (ord(char) - 0xAC00) % 28 == 0
