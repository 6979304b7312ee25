"""Names that look like another name: by case, width, accents, invisible or similar characters.

A short form of the skeletons of Unicode Technical Standard 39, with the letters of other scripts
that look like the Latin ones.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache

_SIMILAR = {
    "a": "\u0430\u0251\u03b1",
    "b": "\u0432\u044c\u03b2",
    "c": "\u0441\u03f2",
    "d": "\u0501\u0257",
    "e": "\u0435\u03b5\u0454",
    "g": "\u0261\u050d\u0581",
    "h": "\u04bb\u043d\u0570",
    "j": "\u0458\u03f3",
    "k": "\u043a\u03ba",
    "l": "1|i\u0456\u0131\u0269\u03b9",
    "m": "\u043c",
    "n": "\u0578\u03b7\u043f",
    "o": "0\u043e\u03bf\u0585",
    "p": "\u0440\u03c1",
    "q": "\u051b\u0566",
    "r": "\u0433",
    "s": "\u0455",
    "t": "\u0442\u03c4",
    "u": "\u057d\u03c5",
    "v": "\u03bd\u0475",
    "w": "\u051d\u0448",
    "x": "\u0445\u03c7",
    "y": "\u0443\u03b3\u028f\u04af",
}
"""Characters that look like a letter, by that letter; escaped because they do."""
_LETTERS = str.maketrans({each: letter for letter, alike in _SIMILAR.items() for each in alike})
_PAIRS = (("rn", "m"), ("vv", "w"))
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn"})
"""Categories without a shape of their own: controls, formats, unassigned, accents."""
_MORE_UNSEEN = frozenset("\u115f\u1160\u3164\uffa0\u2800")
"""Letters and symbols that are blank."""
_BREAKS = re.compile(r"[^\w*?\[\]]+|_+")
_OTHER_STYLE = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+|[a-z]+[0-9]*(?:[A-Z][a-z0-9]*)+")
"""``search_query`` and ``searchQuery``: what other tools are called that have such words."""


@lru_cache(maxsize=4096)
def seen(name: str) -> str:
    """Return what a reader sees of a name, ignoring case."""
    shown = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    return "".join(
        each
        for each in shown
        if unicodedata.category(each) not in _UNSEEN and each not in _MORE_UNSEEN
    )


def looks_like(name: str, pattern: str) -> bool:
    """Return whether a name is, or looks like, one that matches a pattern as of ``fnmatch``.

    Names differ if their letters and digits do, or if one is written in another style, with
    underscores or capitals between the words.
    """
    if fnmatchcase(name, pattern):
        return True
    if _OTHER_STYLE.fullmatch(name):
        return False
    skeleton, wanted = _skeleton(name), _skeleton(pattern)
    if fnmatchcase(skeleton, wanted):
        return True
    return "*" not in wanted and skeleton.replace("-", "") == wanted.replace("-", "")


@lru_cache(maxsize=4096)
def _skeleton(name: str) -> str:
    """Return a name with one letter for all that look like it, and hyphens between its words."""
    text = seen(name).translate(_LETTERS)
    for pair, letter in _PAIRS:
        text = text.replace(pair, letter)
    return _BREAKS.sub("-", text).strip("-")
