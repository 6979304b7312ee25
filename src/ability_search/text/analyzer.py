"""Analysis of text into terms, by the same rules for documents and for queries.

Text is cut into words, identifiers as a whole and in parts, character pairs and symbols, of which
case and stem are normalized. The patterns match class letters (:mod:`.characters`) and never
backtrack, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from threading import Lock
from typing import Final

import snowballstemmer

from ability_search.errors import InvalidInput
from ability_search.text.characters import classify
from ability_search.text.languages import STOP_WORDS

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


DEFAULT_LANGUAGE: Final = "english"
UNSTEMMED: Final = "none"
"""Language without stemming, for Chinese, Japanese, Korean, Thai and for code."""

_CACHED_TERMS = 1 << 16
_CACHED_WORDS = 1 << 15
_CACHED_LENGTH = 32
"""Maximum characters of a cached word; longer words rarely recur. As each character of a Chinese
one begins a term, the caches may take 100 MB; analyzers of all languages share that of terms."""
_LATIN_END = 0x250
_STOP_PIECES = """
    什 什么 什麼 么 麼 怎 怎么 怎麼 怎样 怎樣 么办 麼辦 为什 為什 如何
    哪 哪里 哪裡 哪个 哪個 哪些 多少 吗 嗎 呢
    何 です すか ます ませ まし でし した して する くだ ださ
    的 了 是 在 和 与 與 及 或 也 就 被 把 从 從 对 對 为 為 于 於 之 而 但 这 這 那 其 着 著
    の は が を に へ と で も や
"""
"""Stop words of Chinese and Japanese for every language, as pieces before normalization: ます ends
a verb, マス begins マスク (mask)."""
_HIRAGANA: Final = {kana: kana - 0x60 for kana in (*range(0x30A1, 0x30F7), 0x30FD, 0x30FE)}
"""Maps katakana to the hiragana of the same sound: ネコ and ねこ are one word."""


def languages() -> tuple[str, ...]:
    """Return the names an :class:`Analyzer` takes, in alphabetical order."""
    return tuple(sorted({*snowballstemmer.algorithms(), UNSTEMMED}))


class Analyzer:
    """An analyzer of one language, for documents and for queries.

    A term is a piece (:func:`.tokenizer.pieces`) in compatibility form (NFKC), case-folded, stemmed
    by the Snowball algorithm of the language if it has letters only, with katakana converted to
    hiragana and without the accents of Latin letters. Documents keep all terms; stop words are
    removed from queries.

    Safe to share between threads. Never raises on any text; linear in its length.

    Attributes:
        language: the name the analyzer was made for, in lower case.
    """

    def __init__(self, language: str = DEFAULT_LANGUAGE) -> None:
        """Create the analyzer of ``language``, one of :func:`languages`, in any case.

        Raises:
            InvalidInput: for any other name (field ``language``).
        """
        name = language.strip().lower()
        if name not in languages():
            raise InvalidInput(
                "language",
                f"no analyzer for {language[:40]!r}",
                hint=f"Use one of {', '.join(languages())}; {UNSTEMMED} for any other language.",
            )
        self.language = name
        self._stemmer = None if name == UNSTEMMED else snowballstemmer.stemmer(name)
        self._stemming = Lock()  # a Snowball stemmer keeps the word it works on
        self._known: dict[str, tuple[str, ...]] = {}
        self._stop_terms = frozenset(self.terms(STOP_WORDS.get(name, "")))
        self._stop_pieces = frozenset(_STOP_PIECES.split())

    def terms(self, text: str) -> list[str]:
        """Return the terms of ``text`` in order of position, repetitions included.

        A whole precedes its parts. Text without words, numbers or symbols has no terms.
        """
        # Pieces never cross whitespace, so that the terms of a word can be cached.
        words, known = text.split(), self._known
        with suppress(KeyError):
            return [*chain.from_iterable(map(known.__getitem__, words))]
        return [term for word in words for term in known.get(word) or self._of_word(word)]

    def query_terms(self, text: str) -> list[str]:
        """Return the terms of a query: :meth:`terms` without stop words.

        A query that has only stop words keeps them.
        """
        return self.content_terms(text) or self.terms(text)

    def content_terms(self, text: str) -> list[str]:
        """Return the terms of ``text`` that are not stop words.

        There are stop words for English, and for Chinese and Japanese in every language. A word in
        capitals within other text (``IT``, ``WHO``) is not a stop word.
        """
        shouted = text.isupper()
        return [
            term
            for term, start, end in self.spans(text)
            if (written := text[start:end]) not in self._stop_pieces
            and (
                term not in self._stop_terms
                or (len(written) > 1 and not shouted and written.isupper())
            )
        ]

    def spans(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield ``(term, start, end)`` for each term of :meth:`terms`, in the same order.

        ``text[start:end]`` is the piece before normalization. Spans of a whole and of its parts
        overlap.
        """
        term_of = self._term
        for piece, start, end in pieces(text):
            yield term_of(piece), start, end

    def _of_word(self, word: str) -> tuple[str, ...]:
        found = tuple([self._term(piece) for piece, _, _ in pieces(word)])
        if len(word) <= _CACHED_LENGTH:
            if len(self._known) >= _CACHED_WORDS:
                self._known.clear()
            self._known[word] = found
        return found

    # Analyzers live as long as the process, see analyzer_for().
    @lru_cache(maxsize=_CACHED_TERMS)  # noqa: B019
    def _term(self, piece: str) -> str:
        if piece.isascii():
            return self._stemmed(self._folded(piece))
        term = self._folded(unicodedata.normalize("NFKC", piece))
        if "j" in (classes := classify(term)):
            term = "".join(c for c, kind in zip(term, classes, strict=True) if kind != "j")
        return _without_accents(self._stemmed(term)).translate(_HIRAGANA)

    def _folded(self, piece: str) -> str:
        if self.language == "turkish":
            piece = piece.replace("I", "ı").replace("İ", "i")
        folded = piece.casefold()
        return folded if folded.isascii() else unicodedata.normalize("NFKC", folded)

    def _stemmed(self, term: str) -> str:
        if self._stemmer is None or not term.isalpha():
            return term
        with self._stemming:
            return str(self._stemmer.stemWord(term)) or term


def _without_accents(term: str) -> str:
    """Return ``term`` without combining marks on Latin letters; other scripts keep theirs."""
    if term.isascii():
        return term
    kept = []
    latin = False
    for char in unicodedata.normalize("NFD", term):
        if not unicodedata.combining(char):
            latin = ord(char) < _LATIN_END
        elif latin:
            continue
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept))


@lru_cache(maxsize=64)
def analyzer_for(language: str = DEFAULT_LANGUAGE) -> Analyzer:
    """Return the analyzer of ``language``, one per process and name, so that its cache is shared.

    Raises:
        InvalidInput: as for :class:`Analyzer`.
    """
    return Analyzer(language)
