"""Counting the tokens of a text for an embedding model."""

from __future__ import annotations

import functools
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ability_search.errors import ConfigurationError

Cumulative = npt.NDArray[np.int32]
"""Shape (len(text) + 1,): the number of tokens that begin before each character, and in all."""


class TokenCounter(Protocol):
    """A counter of tokens, without the special tokens that a model adds to its input."""

    name: str
    """Name that is recorded with what was counted."""

    def count(self, text: str) -> int:
        """Return the number of tokens of ``text``; 0 for the empty text."""

    def cumulative(self, text: str) -> Cumulative:
        """Return the number of tokens before each character: ascending, from 0 to the count.

        The difference between two offsets is the count of the text between them: exact if no word
        is cut, approximate otherwise.
        """


_SPACE, _LOWER, _UPPER, _DIGIT, _SINGLE, _HANGUL = range(6)
_SPACES_PER_TOKEN = 16
_LONG_WORD = 32
_LONG_MIXED_WORD = 12


class EstimatedTokens:
    """A counter without a tokenizer, by classes of characters and lengths of runs.

    The rates fit the uncased English WordPiece vocabulary (30,522 pieces) of most small embedding
    models. The estimate is seldom below the true count:

    - Latin words: one token up to 5 letters, two up to 9, three up to 12, then three tokens for
      every five letters. A capital or a digit after a lower-case letter begins another word, as in
      ``camelCase``.
    - Words over 32 letters, or over 12 with a digit among them (base64, hashes, keys): three
      tokens for every four characters.
    - Runs of capitals: two tokens from the third on, another for every three more.
    - Digits: three tokens for every five.
    - Other visible characters (punctuation, symbols, Chinese, Japanese, Cyrillic, Arabic, Thai,
      combining marks, emoji): one token each; a Korean syllable has one for each of its two or
      three jamo.
    - Whitespace: one token for every sixteen characters of a run.

    Runs of emoji, combining marks, and letters from Arabic to Tibetan are at most a sixth below the
    counts of XLM-R's SentencePiece, too. Byte-level tokenizers may need four tokens for an emoji.
    """

    name = "estimate"

    def count(self, text: str) -> int:
        """Return the estimated number of tokens of ``text``."""
        return int(_weights_by_word(text).sum())

    def cumulative(self, text: str) -> Cumulative:
        """Return the estimated number of tokens before each character of ``text``."""
        result = np.zeros(len(text) + 1, dtype=np.int32)
        np.add.accumulate(_weights_by_word(text), dtype=np.int32, out=result[1:])
        return result


_WIDE = re.compile(rf"\s{{{_SPACES_PER_TOKEN}}}")
"""Whitespace that counts."""
_BETWEEN = "\0"
"""A character that does not change the weights of those beside it."""
_seen: dict[str, bytes] = {}
"""Weights of words, which do not depend on the spaces beside them."""


def _weights_by_word(text: str) -> npt.NDArray[np.uint8]:
    """Return :func:`_weights`; in a text that is not long, those of words seen before by lookup."""
    if len(text) > _LONG or _WIDE.search(text):
        return _weights(text).astype(np.uint8)
    words = text.split(" ")
    found = list(map(_seen.get, words))
    if None in found:
        places = [place for place, weights in enumerate(found) if weights is None]
        unseen = _BETWEEN.join([words[place] for place in places])
        every, start = _weights(unseen).astype(np.uint8).tobytes(), 0
        if len(_seen) + len(places) > _CACHED_WORDS:
            _seen.clear()
        for place in places:
            word = words[place]
            found[place] = weights = every[start : start + len(word)]
            start += len(word) + len(_BETWEEN)
            if len(word) <= _CACHED_LENGTH:
                _seen[word] = weights
    return np.frombuffer(b"\0".join(found), np.uint8)  # type: ignore[arg-type]


def _weights(text: str) -> npt.NDArray[np.int32]:
    """Return the number of tokens that begin at each character."""
    if not text:
        return np.zeros(0, dtype=np.int32)
    codes: npt.NDArray[np.uint8] | npt.NDArray[np.uint32]
    if text.isascii():
        codes = np.frombuffer(text.encode(), dtype=np.uint8)
        kinds = _kinds()[codes]
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        kinds = _kinds()[np.minimum(codes, 0xFFFF)]
    before, here = kinds[:-1], kinds[1:]
    at = _places((here != before) & ~((before == _UPPER) & (here == _LOWER)))

    three_of_five = (at * 3) % 5 < 3
    small = (at == 0) | (at == 5) | (at == 9) | ((at >= 12) & three_of_five)
    weights = np.ones(len(kinds), dtype=np.int32)
    for kind, counts in (
        (_SPACE, at % _SPACES_PER_TOKEN == _SPACES_PER_TOKEN - 1),
        (_LOWER, small),
        (_UPPER, (at == 0) | (at % 3 == 2)),
        (_DIGIT, three_of_five),
    ):
        np.copyto(weights, counts, where=kinds == kind, casting="unsafe")
    _weigh_random(weights, kinds)
    hangul = kinds == _HANGUL
    if hangul.any():
        has_final = (codes[hangul] - 0xAC00) % 28 != 0
        weights[hangul] = 2 + has_final
    return weights


def _weigh_random(weights: npt.NDArray[np.int32], kinds: npt.NDArray[np.uint8]) -> None:
    """Raise the weights of long words that are not in any vocabulary, such as hashes."""
    if len(kinds) <= _LONG_MIXED_WORD:
        return
    in_word = np.zeros(len(kinds) + 2, dtype=bool)
    in_word[1:-1] = (kinds == _LOWER) | (kinds == _UPPER) | (kinds == _DIGIT)
    edges = np.flatnonzero(in_word[1:] != in_word[:-1])
    starts, ends = edges[::2], edges[1::2]
    digits = np.concatenate(([0], np.cumsum(kinds == _DIGIT)))
    has_digit = digits[ends] > digits[starts]
    length = ends - starts
    chosen = (length > _LONG_WORD) | ((length > _LONG_MIXED_WORD) & has_digit)
    for start, end in zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True):
        weights[start:end] = np.arange(end - start) % 4 < 3


def _places(changes: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return the index of each character within its run; ``changes`` marks the ends of runs."""
    places = np.arange(len(changes) + 1)
    begins = np.concatenate(([True], changes))
    return places - np.maximum.accumulate(np.where(begins, places, 0))


@functools.cache
def _kinds() -> npt.NDArray[np.uint8]:
    """Return the class of each code point of the basic plane; the last is for all others too."""
    kinds = np.full(0x10000, _SINGLE, dtype=np.uint8)
    for code in range(0x10000):
        char = chr(code)
        if char.isspace():
            kinds[code] = _SPACE
        elif char.isdecimal():
            kinds[code] = _DIGIT if code < 0x80 else _SINGLE
        elif char.isalpha() and unicodedata.name(char, "").startswith("LATIN "):
            kinds[code] = _UPPER if char.isupper() else _LOWER
    kinds[0xAC00:0xD7A4] = _HANGUL
    return kinds


_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANKS = {ord(blank): " " for blank in "\t\n\r"}
_CACHED_WORDS = 1 << 16
_CACHED_LENGTH = 64
"""Maximum characters of a cached word; longer words rarely recur."""
_LONGEST_TOKEN = 32
"""Maximum characters of a token, beyond which some were left out of it."""
_OWN_TOKEN = re.compile(r"[!-/:;=?@\\^`{}~\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""Characters that BERT's tokenizer separates from their neighbours, without those of [SEP], <s>."""
_LONG = 10_000
"""Characters from which encoding a text takes milliseconds."""
_HUGE = 1_000_000
"""Characters from which a list of numbers takes too much memory."""


class TokenizerTokens:
    """A counter with the tokenizer of the embedding model, without its special tokens.

    A model with a limit of 512 tokens that adds [CLS] and [SEP] has room for 510 of these. Lone
    surrogates, which tokenizers reject, count as U+FFFD.

    What the tokenizer does not know is estimated: an unknown token, which stands for a word of any
    length in emoji, Thai or another script, and a word of which no token is left.
    """

    def __init__(self, path: Path | str) -> None:
        """Load a ``tokenizer.json`` and disable its truncation and padding.

        Raises:
            ConfigurationError: if the ``tokenizers`` package is missing or the file is unusable.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as exc:
            raise ConfigurationError(
                "counting with a tokenizer.json needs the tokenizers package",
                hint="Install ability-search[local], or leave the tokenizer out.",
            ) from exc
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as exc:  # the bindings raise nothing narrower
            raise ConfigurationError(
                f"{Path(path).name} is no readable tokenizer: {exc}",
                hint="Name the tokenizer.json that belongs to the embedding model.",
            ) from exc
        self.name = f"tokenizer:{Path(path).parent.name}"
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        self._unknown = self._tokenizer.token_to_id(unknown) if unknown else None
        self._by_word = _reads_words_alone(self._tokenizer)
        self._cached = functools.lru_cache(maxsize=_CACHED_WORDS)(self._encoded)

    def count(self, text: str) -> int:
        """Return the number of tokens of ``text``."""
        return len(self._starts(text))

    def cumulative(self, text: str) -> Cumulative:
        """Return the number of tokens before each character of ``text``."""
        result = np.zeros(len(text) + 1, dtype=np.int32)
        begins = np.bincount(np.array(self._starts(text), np.intp), minlength=len(text) + 1)
        # A token of zero width may begin at the very end; it counts too.
        begins[len(text) - 1 if text else 0] += begins[len(text)] if text else 0
        np.cumsum(begins[: len(text)], out=result[1:])
        return result

    def _starts(self, text: str) -> Sequence[int]:
        """Return the start offset of each token."""
        if not self._by_word:
            return self._encoded(text) or _estimated_starts(text, 0, len(text))
        starts: list[int] | array[int] = [] if len(text) <= _HUGE else array("q")
        at = 0
        slices = (text[begin : begin + _LONG] for begin in range(0, len(text), _LONG))
        for word in "".join(part.translate(_BLANKS) for part in slices).split(" "):
            before = len(starts)
            if 0 < len(word) <= _CACHED_LENGTH:
                starts.extend([at + start for start in self._cached(word)])
            elif word:
                for begin, part in _parts(word):
                    starts.extend([at + begin + start for start in self._encoded(part)])
            if word and len(starts) == before:
                starts.extend([at + start for start in _estimated_starts(word, 0, len(word))])
            at += len(word) + 1
        return starts

    def _encoded(self, text: str) -> Sequence[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            text = _SURROGATE.sub("\ufffd", text)
        if len(text) <= _LONG:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        else:
            # Unlike encode(), this releases the interpreter lock.
            (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        spans = encoding.offsets
        starts = [start for start, _ in spans]
        unread = [
            place
            for place, (token, (start, end)) in enumerate(zip(encoding.ids, spans, strict=True))
            if end - start > (1 if token == self._unknown else _LONGEST_TOKEN)
        ]
        for place in reversed(unread):
            starts[place : place + 1] = _estimated_starts(text, *spans[place])
        return starts


def _estimated_starts(text: str, start: int, end: int) -> list[int]:
    """Return the estimated start offsets of the tokens of a span."""
    weights = _weights(text[start:end])
    return np.repeat(np.arange(start, end), weights).tolist()


def _parts(word: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a word with their offsets, cut where a token begins in any case.

    The tokenizer needs 500 bytes for a token, and the words of some scripts are never separated.
    """
    at = 0
    while (begin := _OWN_TOKEN.search(word, at + _LONG)) is not None:
        yield at, word[at : begin.start()]
        at = begin.start()
    yield at, word[at:]


def _reads_words_alone(tokenizer: Any) -> bool:
    """Return whether the tokens of a word never depend on other words, as in BERT's tokenizer."""
    parts = [type(part).__name__ for part in (tokenizer.normalizer, tokenizer.pre_tokenizer)]
    added = tokenizer.get_added_tokens_decoder().values()
    return parts == ["BertNormalizer", "BertPreTokenizer"] and not any(
        each.lstrip or each.rstrip or each.content.split() != [each.content] for each in added
    )
