r"""Character classes for the tokenizer, one class letter per character.

The tokenizer matches its patterns against a string of class letters that is as long as the text.
Offsets in both are the same, although normalization may change the length of a term later.

======== ==========================================================================
``a A``  letter: lower case or caseless; upper or title case
``d``    decimal digit
``m``    combining mark, or a jamo or voicing mark that joins the character before it
``h k``  Han; kana and bopomofo
``g t``  Hangul; scripts written without spaces (Thai, Lao, Khmer, Myanmar)
``e r``  symbol that is a term of its own (emoji); regional indicator (half a flag)
``x``    replaced by its compatibility form: ``㎏``, ``½``, ``①``
``j``    invisible inside a word: joiners, soft hyphen, variation selectors, skin tones
other    ``_ - ' . & , / \ : @ + #`` are their own class; all others are a space
======== ==========================================================================
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right

_CONNECTORS = frozenset("_-'.&,/\\:@+#")
_VARIANTS = {"‐": "-", "‑": "-", "’": "'", "ʼ": "'"}
_RANGES: tuple[tuple[int, int, str], ...] = (
    (0x0E00, 0x0EFF, "t"),  # Thai, Lao
    (0x1000, 0x109F, "t"),  # Myanmar
    (0x1100, 0x115F, "g"),  # leading jamo
    (0x1160, 0x11FF, "m"),  # vowels and final consonants compose with the previous jamo
    (0x1780, 0x17FF, "t"),  # Khmer
    (0x2500, 0x259F, " "),  # box drawing: category So, but useless in a search
    (0x2E80, 0x2FDF, "h"),  # radicals
    (0x3005, 0x3007, "h"),
    (0x3021, 0x3029, "h"),
    (0x3040, 0x30FF, "k"),
    (0x3100, 0x312F, "k"),
    (0x3130, 0x318F, "g"),
    (0x31A0, 0x31BF, "k"),
    (0x31F0, 0x31FF, "k"),
    (0x3400, 0x4DBF, "h"),
    (0x4E00, 0x9FFF, "h"),
    (0xA960, 0xA97F, "g"),
    (0xAA60, 0xAA7F, "t"),
    (0xAC00, 0xD7A3, "g"),
    (0xD7B0, 0xD7FF, "m"),
    (0xF900, 0xFAFF, "h"),
    (0xFE00, 0xFE0F, "j"),  # variation selectors
    (0xFF66, 0xFF9D, "k"),
    (0xFF9E, 0xFF9F, "m"),  # half-width voicing marks
    (0xFFA0, 0xFFDC, "g"),
    (0xFFFD, 0xFFFD, " "),
    (0x1AFF0, 0x1B16F, "k"),
    (0x1F1E6, 0x1F1FF, "r"),
    (0x1F3FB, 0x1F3FF, "j"),  # skin tones
    (0x20000, 0x3FFFF, "h"),
    (0xE0100, 0xE01EF, "j"),
)
_STARTS = [first for first, _, _ in _RANGES]
_BY_CATEGORY = {
    "Lu": "A",
    "Lt": "A",
    "Ll": "a",
    "Lm": "a",
    "Lo": "a",
    "Nl": "a",
    "Nd": "d",
    "Mn": "m",
    "Mc": "m",
    "Me": "m",
    "So": "e",
    "Cf": "j",
}
_LETTER_CLASSES = frozenset("aAdmhkgt")
_MEMO_LIMIT = 1 << 16


class _Classes(dict[int, str]):
    """A translation table filled on demand, up to a maximum size."""

    def __missing__(self, point: int) -> str:
        letter = _classify(point)
        if len(self) < _MEMO_LIMIT:
            self[point] = letter
        return letter


def classify(text: str) -> str:
    """Return the class letters of ``text``, one per character, in order. Never raises."""
    return text.translate(_CLASSES)


def _classify(point: int) -> str:
    char = chr(point)
    if char in _CONNECTORS:
        return char
    if char in _VARIANTS:
        return _VARIANTS[char]
    category = unicodedata.category(char)
    at = bisect_right(_STARTS, point) - 1
    if at >= 0 and point <= _RANGES[at][1]:
        return _in_script(category, _RANGES[at][2])
    if char == "\u200b":  # a zero-width space separates, unlike the other format characters
        return " "
    return _by_compatibility(char, category)


def _in_script(category: str, letter: str) -> str:
    """Return the class within a script's block; punctuation, digits and marks keep theirs."""
    if letter in "htgk" and category[0] in "MNP" and category not in {"No", "Nl"}:
        return {"M": "m", "N": "d", "P": " "}[category[0]]
    return " " if category == "Cn" else letter


def _by_compatibility(char: str, category: str) -> str:
    letter = _BY_CATEGORY.get(category, " ")
    if letter in "aAdmj":
        return letter
    plain = unicodedata.normalize("NFKC", char)
    if plain == char:
        return letter if ord(char) > 0xFF else " "
    if len(plain) == 1 and plain in _CONNECTORS:
        return plain
    return "x" if any(classify(one) in _LETTER_CLASSES for one in plain) else letter


_CLASSES = _Classes()
