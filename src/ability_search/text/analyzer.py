"""Analysis of text into terms, by the same rules for documents and for queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock
from typing import Final

import snowballstemmer

from ability_search.errors import InvalidInput
from ability_search.text.characters import classify
from ability_search.text.languages import STOP_WORDS
from ability_search.text.tokenizer import pieces

DEFAULT_LANGUAGE: Final = "english"
UNSTEMMED: Final = "none"
"""Language without stemming, for Chinese, Japanese, Korean, Thai and for code."""

_CACHED_TERMS = 1 << 16
_CACHED_WORDS = 1 << 15
_CACHED_LENGTH = 32
"""Maximum characters of a cached word; longer words rarely recur. As each character of a Chinese
one begins a term, the caches may take 100 MB; analyzers of all languages share them."""
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
        self._stop_terms = frozenset(self.terms(STOP_WORDS.get(name, "")))
        self._stop_pieces = frozenset(_STOP_PIECES.split())

    def terms(self, text: str) -> list[str]:
        """Return the terms of ``text`` in order of position, repetitions included.

        A whole precedes its parts. Text without words, numbers or symbols has no terms.
        """
        found: list[str] = []
        cached = self._cached
        # Pieces never cross whitespace, so that the terms of a word can be cached.
        for word in text.split():
            found += cached(word) if len(word) <= _CACHED_LENGTH else self._of_word(word)
        return found

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
        found = [(term, text[start:end]) for term, start, end in self.spans(text)]
        shouted = text.isupper()
        return [
            term
            for term, written in found
            if written not in self._stop_pieces
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
        return tuple([self._term(piece) for piece, _, _ in pieces(word)])

    # Analyzers live as long as the process, see analyzer_for().
    _cached = lru_cache(maxsize=_CACHED_WORDS)(_of_word)

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
