"""Strings that make a backtracking pattern work hard, derived from the pattern itself.

An attack is ``prefix + pump * n + suffix``: the prefix leads a match into the pattern, the pump is
what one of its parts repeats or what stands before such a part, and the suffix lets the match fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_POOL = [
    *"a0A -_.,:;/\\'\"<>()[]{}#*\n\t\r!%&+=?@`|~$^bzZ9",
    "\x00",
    "\x85",
    "\xa0",
    "\xe9",
    "\u2029",
    "\u4e2d",
    "\u2026",
]
_REPEATS = {code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT}
_SUFFIXES = ("", "\n!", "\x00")
_LONGEST = 60
"""Characters of a pump or prefix."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A text of any size that repeats one pump."""

    prefix: str
    pump: str
    suffix: str

    def text(self, size: int) -> str:
        """Return the attack with about ``size`` characters."""
        return self.prefix + self.pump * (size // len(self.pump)) + self.suffix


def attacks(pattern: re.Pattern[Any], *, most: int) -> list[Attack]:
    """Derive the attacks on a pattern from its parsed form; the likeliest ones if there are more.

    Every character and repeated part is pumped behind what leads to it and alone, and every two
    characters together alone.
    """
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    led = dict.fromkeys(
        (before[:_LONGEST], pump[:_LONGEST])
        for before, pump in _pumps(parser.parse(text, flags).data, "", flags)
        if pump
    )
    alone = dict.fromkeys(pump for _, pump in led)
    characters = [pump for pump in alone if len(pump) == 1]
    found = [Attack("", pump, suffix) for pump in alone for suffix in _SUFFIXES]
    found += [Attack(before, pump, _SUFFIXES[-1]) for before, pump in led if before]
    found += [Attack("", "".join(two), _SUFFIXES[-1]) for two in permutations(characters, 2)]
    return found[:: -(-len(found) // most)]


def _pumps(items: Sequence[Any], before: str, flags: int) -> Iterator[tuple[str, str]]:
    """Yield what leads to each part that repeats or varies, and the pumps it suggests."""
    start = before
    for item in items:
        op, value = item
        yield before, before[len(start) :]
        for char in _characters(item, flags):
            yield before, char
        if op in _REPEATS:
            body = value[2]
            for choice in range(3):
                yield before, "".join(_spelled(part, choice, flags) for part in body)
                yield before, before[len(start) :] + _spelled(item, choice, flags)
            yield from _pumps(body, before, flags)
        else:
            for inner in _inner(item):
                yield from _pumps(inner, before, flags)
        before += _spelled(item, 0, flags)
    yield start, before[len(start) :]


def _inner(item: Any) -> list[Sequence[Any]]:
    op, value = item
    if op is code.BRANCH:
        return [list(each) for each in value[1]]
    if op is code.SUBPATTERN:
        return [list(value[3])]
    if op is code.ATOMIC_GROUP:
        return [list(value)]
    if op in (code.ASSERT, code.ASSERT_NOT):
        return [list(value[1])]
    return []


def _spelled(item: Any, choice: int, flags: int) -> str:
    """Spell a text that the item matches, more or less; ``choice`` varies it."""
    op, value = item
    if op in _REPEATS:
        low, high, body = value
        times = min(high, max(low, (1, 2, 0)[choice]), 40)
        return "".join(_spelled(each, choice, flags) for each in body) * int(times)
    if op in (code.ASSERT, code.ASSERT_NOT):
        return ""
    if inner := _inner(item):
        return "".join(_spelled(each, choice, flags) for each in inner[choice % len(inner)])
    characters = _characters(item, flags)
    return characters[choice % len(characters)] if characters else ""


def _characters(item: Any, flags: int) -> list[str]:
    """Return at most four different characters that an item for one character matches."""
    op, value = item
    if op is code.LITERAL:
        return [chr(value)]
    if op not in (code.NOT_LITERAL, code.ANY, code.IN):
        return []
    own = [chr(each) for name, each in value if name is code.LITERAL] if op is code.IN else []
    own += [chr(each[0]) for name, each in value if name is code.RANGE] if op is code.IN else []
    fitting = [char for char in [*own, *_POOL] if _fits(item, char, flags)]
    return list(dict.fromkeys(fitting))[:4]


def _fits(item: Any, char: str, flags: int) -> bool:
    op, value = item
    if op is code.ANY:
        return char != "\n" or bool(flags & re.DOTALL)
    if op is code.NOT_LITERAL:
        return bool(ord(char) != value)
    negated = value[0][0] is code.NEGATE
    return negated is not any(_holds(each, char) for each in value)


def _holds(member: Any, char: str) -> bool:
    op, value = member
    if op is code.LITERAL:
        return bool(ord(char) == value)
    if op is code.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    if op is code.CATEGORY:
        return re.fullmatch(_CATEGORIES[value], char) is not None
    return False


_CATEGORIES = {
    code.CATEGORY_DIGIT: r"\d",
    code.CATEGORY_NOT_DIGIT: r"\D",
    code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_NOT_SPACE: r"\S",
    code.CATEGORY_WORD: r"\w",
    code.CATEGORY_NOT_WORD: r"\W",
}
