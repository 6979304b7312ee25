"""Tokenization: words, identifiers as a whole and in parts, character pairs, symbols.

Segmentation only; the analyzer normalizes case and stem. The patterns match class letters
(:mod:`.characters`) and never backtrack, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from ability_search.text.characters import classify

Piece = tuple[str, int, int]
"""A piece, and its offsets ``start`` and ``end`` in the text."""

MAX_WORD = 64
"""Characters; a longer run of letters (encoded data, garbage) is cut into words of this size."""
MAX_WHOLE = 128
"""Characters; a longer compound (a URL with its query) is found by its parts only."""
_MAX_MARKS = 8
"""Maximum marks of a character of an unspaced script; more are noise, and slow to normalize."""

_WORD = r"[aAd][aAdmj]*+"
_GROUPING_COMMA = r"(?<=d),(?=ddd(?![aAd]))"
_AMPERSAND = r"(?<=A)&(?=A)"
_TOKEN = re.compile(
    rf"""
    (?P<plain>A?+a++) (?! [Admj_+\#] | [-'./\\:@][aAd:/] )
    | (?P<dotted>(?<![^ ])\.(?=[aA]))?+
      (?P<compound>{_WORD}(?:(?:_++|://|::|[-'./\\:@]|{_GROUPING_COMMA}|{_AMPERSAND}){_WORD})*+)
      (?P<suffix>\+\+|\#(?![aAd]))?+
    | (?P<grams>[hkgt][hkgtmj]*+)
    | (?P<symbol>e|rr?+)
    | (?P<expand>x)
    """,
    re.VERBOSE,
)
_LEVELS = tuple(re.compile(each) for each in (r"://|::|[/\\:@]", r"[.&]", r"_++|[-',]"))
"""Connectors, loosest first: ``host.name/some-path`` is cut at ``/``, then ``.``, then ``-``."""
_LEFT_OUT = re.compile(r"[-',]")
_WORDS = re.compile(_WORD)
_UPPER, _LOWER, _DIGIT = (rf"{letter}[mj]*+" for letter in "Aad")
_PARTS = re.compile(
    rf"(?:{_UPPER})+(?={_UPPER}{_LOWER})|(?:{_UPPER})?+(?:{_LOWER})++|(?:{_UPPER})++|(?:{_DIGIT})++"
)
_ACRONYM_PLURAL = re.compile(r"AA++a")
_UNIT = re.compile(r"([hkgt])[mj]*+")


def pieces(text: str) -> Iterator[Piece]:
    """Cut ``text`` into pieces, in order of position; a whole precedes its parts.

    - A word is a piece; a possessive ``'s`` is dropped.
    - A compound gives the whole and, at each level, its parts: ``ERR_4012`` the whole, ``ERR``,
      ``4012``; ``fooBar`` the whole, ``foo``, ``Bar``. Hyphens, apostrophes and the commas of a
      number are removed from the whole, so that ``e-mail`` matches ``email``. ``C++``, ``C#`` and
      ``.NET`` are pieces with their punctuation, in addition to the bare word.
    - A run of Han, kana, Hangul or a script without spaces gives each pair of neighbours; a single
      character is a piece; every Han character is a piece of its own too.
    - A symbol such as an emoji is a piece.

    Other characters, including lone surrogates and control characters, are dropped.
    """
    classes = classify(text)
    for match in _TOKEN.finditer(classes):
        start, end = match.span()
        kind = match.lastgroup
        if kind == "plain" and end - start <= MAX_WORD or kind == "symbol":
            yield text[start:end], start, end
        elif kind == "grams":
            yield from _grams(text, classes, start, end)
        elif kind == "expand":
            for piece in _expansion(text[start:end]):
                yield piece, start, end
        elif kind == "plain":
            yield from _word(text, classes, start, end)
        else:
            yield from _compound(text, classes, match)


@lru_cache(maxsize=4096)
def _expansion(char: str) -> tuple[str, ...]:
    return tuple(piece for piece, _, _ in pieces(unicodedata.normalize("NFKC", char)))


def _compound(text: str, classes: str, match: re.Match[str]) -> Iterator[Piece]:
    """Yield the pieces of a compound, with its leading dot and its trailing ``++`` or ``#``."""
    start, end = match.span("compound")
    if match["dotted"]:
        word = _WORDS.match(classes, start, start + MAX_WORD)
        stop = word.end() if word else end
        yield text[start - 1 : stop], start - 1, stop
    if match["suffix"]:
        tail = start
        for word in _WORDS.finditer(classes, max(start, end - MAX_WHOLE), end):
            tail = word.start()
        if end - tail <= MAX_WORD:
            yield text[tail : match.end()], tail, match.end()
    yield from _level(text, classes, start, end, 0)


def _level(text: str, classes: str, start: int, end: int, level: int) -> Iterator[Piece]:
    """Yield the pieces of ``text[start:end]``, cut at connectors of ``level`` and below."""
    for below in range(level, len(_LEVELS)):
        cuts = []
        at = start
        for connector in _LEVELS[below].finditer(classes, start, end):
            cuts.append((at, connector.start()))
            at = connector.end()
        if not (cuts and text[at:end] in {"s", "S"} and classes[at - 1] == "'"):
            cuts.append((at, end))
        if len(cuts) > 1:
            break
        ((start, end),) = cuts
    else:
        yield from _word(text, classes, start, end)
        return
    stop = cuts[-1][1]
    if stop - start <= MAX_WHOLE:
        yield _whole(text, classes, start, stop), start, stop
    for s, e in cuts:
        if not _is_elision(classes, s, e, start, stop):
            yield from _level(text, classes, s, e, below + 1)


def _whole(text: str, classes: str, start: int, end: int) -> str:
    kept = []
    at = start
    for connector in _LEFT_OUT.finditer(classes, start, end):
        kept.append(text[at : connector.start()])
        at = connector.end()
    kept.append(text[at:end])
    return "".join(kept)


def _is_elision(classes: str, start: int, end: int, first: int, last: int) -> bool:
    """Return whether this is the letter before or after an apostrophe: ``l'avion``, ``don't``."""
    return end - start == 1 and (
        (end < last and classes[end] == "'") or (start > first and classes[start - 1] == "'")
    )


def _word(text: str, classes: str, start: int, end: int) -> Iterator[Piece]:
    """Yield a word between connectors and, if case or digits divide it, its parts."""
    for at in range(start, end, MAX_WORD):
        stop = min(at + MAX_WORD, end)
        if text[stop - 1] == "s" and _ACRONYM_PLURAL.fullmatch(classes, at, stop):
            stop -= 1  # stemmers leave the plural of an acronym without vowels as it is
        yield text[at:stop], at, stop
        parts = [match.span() for match in _PARTS.finditer(classes, at, stop)]
        # Digests and encoded data change between digits and letters all the time: only noise.
        if 1 < len(parts) <= max(3, (stop - at) // 2):
            for s, e in parts:
                yield text[s:e], s, e


def _grams(text: str, classes: str, start: int, end: int) -> Iterator[Piece]:
    previous: tuple[str, int] | None = None
    alone = True
    unit, s, e = "", start, start
    for match in _UNIT.finditer(classes, start, end):
        s = match.start()
        e = min(match.end(), s + 1 + _MAX_MARKS)
        unit = text[s:e]
        if previous is not None:
            alone = False
            yield previous[0] + unit, previous[1], e
        if match[1] == "h":
            yield unit, s, e
        previous = (unit, s)
    if alone and classes[start] != "h":
        yield unit, s, e
