"""Encodings of text files: byte order marks, UTF-8, and what the words and letters suggest."""

from __future__ import annotations

import codecs
import re
import unicodedata
from contextlib import suppress
from functools import cache
from itertools import pairwise

import chardet

from ability_search.text.formats import NOT_TEXT, Unreadable
from ability_search.text.loaders import Doubt

_WINDOWS = ("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874")
_CHINESE_JAPANESE_KOREAN = ("gb18030", "big5", "cp932", "euc-jp", "cp949")
_COMMON = ("iso8859-2", "iso8859-7", "koi8-r", "koi8-u", *_CHINESE_JAPANESE_KOREAN)
_RARE = ("cp850", "cp852", "cp866", "iso8859-5", "iso8859-6", "iso8859-13", "iso8859-15")
_RAREST = ("cp857", "cp855", "iso8859-3", "iso8859-4", "iso8859-10", "iso8859-16")
_PRIORS = {
    "cp1252": 1.4,
    **dict.fromkeys(_WINDOWS + _COMMON, 1.0),
    **dict.fromkeys((*_RARE, "mac-latin2"), 0.95),
    "mac-roman": 0.9,
    "mac-cyrillic": 0.9,
    **dict.fromkeys(_RAREST, 0.85),
}
"""Encodings that are detected, and by which factor each is more likely than others."""
_SUPERSETS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("shift_jis", "shift_jis_2004", "shift_jisx0213"), "cp932"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
}
"""The encoding that browsers read by the name of another one (encoding.spec.whatwg.org)."""
_DECLARED = re.compile(
    rb"<\?xml[^<>]+encoding=[\"']|<meta[^<>]+charset=[\"']?"
    rb"|\A(?:[^\n]*\n)?[ \t\f]*(?:#|//|/\*|;|%|--|\"|\.\.)[^\n]*coding[:=][ \t]*"
    rb"|\A@charset \"|^\"Content-Type:[^\n]+charset=",
    re.IGNORECASE | re.MULTILINE,
)
"""The declaration of an encoding: XML, HTML, source code, CSS, catalogues of translations."""
_NAME = re.compile(rb"[\w.:-]+")
_HEAD = 4096
_ASCII = rb"A\\ +~{}"
_MARKS = (
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
_ESCAPED = ("iso2022_jp_2", "iso2022_kr")
"""Encodings of ASCII bytes, with escape sequences."""
_NEIGHBOURS = 2
"""Words before and after one beyond ASCII that help to detect its language."""
_SAMPLE = 1 << 13
"""Bytes by which an encoding is detected."""
_DOUBTFUL = 0.8
"""Share of the best encoding's likelihood from which another one leaves a doubt."""
_MOST_WRONG = 0.01
"""Share of wrong bytes up to which a text of no other encoding is read as UTF-8."""
_TYPOGRAPHY = "\xa0«»‘’“”–—…".encode("cp1252")
_FIRST_LETTER = 0xC0
"""Byte of the first accented letter of Windows-1252."""
_WRONG = re.compile(r"[\udc80-\udcff]++")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\ufffe\uffff]")
_NO_FIT = "some bytes do not fit"
_BINARY = "binary" + NOT_TEXT
_PLAIN = bytes(range(32, 127)) + b"\t\r\n"
_LATIN = "LATIN"
_EAST_ASIAN = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "KATAKANA-HIRAGANA", "FULLWIDTH"))
_QUOTES = "‘’“”"


def detected(data: bytes) -> tuple[str, Doubt]:
    """Decode UTF-8, UTF-16 or UTF-32, else the encoding that is declared, else the likeliest one.

    Wrong bytes of UTF-8 become U+FFFD. If several stand alone, as the accented letters of Western
    languages do, they are read as Windows-1252, beside the words that are UTF-8. Zero bytes in a
    text of single bytes become spaces.

    Raises:
        Unreadable: if the bytes are not text.
    """
    for marks, encoding in _MARKS:
        if data.startswith(marks):
            text = data.decode(encoding, "replace")
            return _nearly(text, encoding, "not in the encoding that its byte order mark names")
    if b"\0" in data:
        if wide := _unmarked_utf32(data) or not _is_padded(data) and _unmarked_utf16(data):
            return wide, ()
        data = data.replace(b"\0", b" ")
        if _CONTROL.search(data.decode("latin-1")):
            raise Unreadable(_BINARY)
    if text := _unescaped(data):
        return text, ()
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "replace")
    if known := _as_declared(data) or _mixed(data.decode("utf-8-sig", "surrogateescape")):
        return known, ()
    # Other encodings hardly ever have the byte sequences of UTF-8 beyond ASCII.
    wrong = text.count("\ufffd")
    if 2 * wrong <= sum(not char.isascii() for char in text):
        return text, _doubt("utf-8", _NO_FIT)
    problem = "text in an encoding that could not be recognised"
    return _guessed(data) or _nearly(text, "utf-8", problem)


def read_as(data: bytes, name: str) -> str:
    """Decode bytes as browsers do; raise ``LookupError`` or ``UnicodeDecodeError`` if not."""
    known = codecs.lookup(name).name
    return data.decode(_SUPERSETS.get(known, known))


def _as_declared(data: bytes) -> str:
    """Return the text in the encoding that it names; empty if it does not fit."""
    place = _DECLARED.search(data[:_HEAD])
    name = _NAME.match(data, place.end()) if place else None
    with suppress(LookupError, UnicodeError):
        if name and read_as(_ASCII, name[0].decode()) == _ASCII.decode():
            return read_as(data, name[0].decode())
    return ""


def _nearly(text: str, encoding: str, problem: str) -> tuple[str, Doubt]:
    """Return a text of which hardly any bytes are wrong; raise the problem if more are."""
    wrong = text.count("\ufffd")
    if wrong > _MOST_WRONG * len(text):
        raise Unreadable(problem)
    return text, _doubt(encoding, _NO_FIT if wrong else "")


def _unescaped(data: bytes) -> str:
    """Return the text in an encoding of escape sequences; empty if it is in none."""
    for encoding in _ESCAPED if b"\x1b" in data and data.isascii() else ():
        with suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if not text.isascii():
                return text
    return ""


def _doubt(encoding: str, reason: str) -> Doubt:
    about = f"read as {encoding}, but {reason}: save it as UTF-8"
    return ((f"encoding={encoding}", about),) if reason else ()


def _guessed(data: bytes) -> tuple[str, Doubt] | None:
    """Return the text in the most likely encoding; ``None`` if no encoding is likely.

    The words beyond ASCII decide, with their neighbours: more ASCII text suggests English, in any
    encoding. A letter beside one of another script, or beside a sign, is unlikely.
    """
    words = data.split()
    near = (
        b" ".join(words[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS + 1])
        for place, word in enumerate(words)
        if not word.isascii()
    )
    gathered = bytearray()
    for part in near:
        gathered += part + b" "
        if len(gathered) > _SAMPLE:
            break
    sample = bytes(gathered[:_SAMPLE])
    ranked: list[tuple[float, str, str]] = []
    for guess in chardet.detect_all(
        sample, ignore_threshold=True, compat_names=False, include_encodings=_PRIORS
    ):
        if name := guess["encoding"]:
            text = sample.decode(name, "replace")
            likely = guess["confidence"] * _PRIORS.get(name, 1.0) * _plausibility(text)
            ranked.append((likely, name, text))
    ranked.sort(reverse=True)
    if not ranked:
        return None
    best, name, text = ranked[0]
    others = [each for likely, each, other in ranked if likely > _DOUBTFUL * best and other != text]
    doubt = f"it may be {others[0]}" if others else ""
    if not best or "\ufffd" in text[:-2]:
        doubt = _NO_FIT
    return data.decode(name, "replace"), _doubt(name, doubt)


def _plausibility(text: str) -> float:
    """Return the share of characters beyond ASCII that fit to the next one."""
    odd = sum(_is_odd(*pair) for pair in pairwise(text))
    return max(0.0, 1 - odd / max(1, sum(not char.isascii() for char in text)))


@cache
def _kind(char: str) -> str:
    """Return the script of a letter, the category of a digit or sign, or "" for what separates."""
    if char.isalpha() and char not in "ªº":
        return _LATIN if char.isascii() else unicodedata.name(char, "?").split()[0]
    if char.isdecimal():
        return "N"
    if char.isascii() or char in "€£°":
        return ""
    category = unicodedata.category(char)[0]
    return category if category in "CSPM" and char != "\xad" else ""


def _is_odd(char: str, following: str) -> bool:
    if char.isascii() and following.isascii():
        return False
    first, second = _kind(char), _kind(following)
    if "C" in (first, second):
        return True
    if not first or not second or "M" in (first, second):
        return False
    if first == second:
        return char.islower() and following.isupper()
    if char in _QUOTES or following in _QUOTES:
        return False
    return not {first, second} <= _EAST_ASIAN | {"P", "N"}


def _mixed(escaped: str) -> str:
    """Return a text of UTF-8 and Windows-1252; empty if it is not such a text.

    Args:
        escaped: Its bytes as UTF-8, wrong ones as surrogates.
    """
    runs = _WRONG.findall(escaped)
    wrong = "".join(runs).encode("utf-8", "surrogateescape")
    likely = sum(byte >= _FIRST_LETTER or byte in _TYPOGRAPHY for byte in wrong)
    if len(runs) < 2 or len(wrong) >= 2 * len(runs) or 2 * likely < len(wrong):
        return ""
    western = {char for char in set(escaped) if not char.isascii() and _is_western(char)}
    if all(char.isascii() or char in western for char in escaped):
        return ""
    text = escaped.translate(
        {
            ord(char): char.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
            for char in western
        }
    )
    return text if _plausibility(text) > _DOUBTFUL else ""


def _is_western(char: str) -> bool:
    """Return whether the bytes of a character are rather characters of Windows-1252.

    An accented letter before a space or a quotation mark of Windows-1252 is by chance also UTF-8,
    of a rare character.
    """
    by_chance = not char.encode("utf-8", "surrogateescape")[1:].strip(_TYPOGRAPHY)
    return by_chance and not char.encode("cp1252", "ignore")


def _is_padded(data: bytes) -> bool:
    """Return whether the bytes are a text of single bytes with some zero bytes.

    In UTF-16, a quarter of the bytes or those beside line breaks are zero, all at every second
    place, or most bytes are not ASCII.
    """
    fewer, more = sorted((data[::2].count(0), data[1::2].count(0)))
    breaks = 2 * max(data.count(b"\n\0"), data.count(b"\0\n")) > data.count(b"\n")
    if 4 * fewer < more and (4 * more > len(data) or breaks):
        return False
    rest = data.replace(b"\0", b"")
    if 10 * len(rest.translate(None, _PLAIN)) < len(rest):
        return True
    try:
        rest.decode()
    except UnicodeDecodeError:
        return False
    return not _CONTROL.search(rest.decode("latin-1"))


def _unmarked_utf32(data: bytes) -> str:
    """Return a text in UTF-32, of which at least half of the bytes are zero; empty otherwise."""
    with suppress(UnicodeDecodeError):
        if 2 * data.count(0) >= len(data):
            is_little = data[3::4].count(0) >= data[::4].count(0)
            text = data.decode("utf-32-le" if is_little else "utf-32-be")
            return "" if _CONTROL.search(text) else text
    return ""


def _unmarked_utf16(data: bytes) -> str:
    texts = [data.decode(codec, "replace") for codec in ("utf-16-le", "utf-16-be")]
    latin, text = max((sum(char < "\u0100" for char in text), text) for text in texts)
    # In UTF-16, most zero bytes are the high bytes of ASCII characters, such as line breaks.
    if 2 * latin < data.count(0) or _CONTROL.search(text) or "\ufffd" in text:
        raise Unreadable(_BINARY)
    return text
