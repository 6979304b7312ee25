r"""Globs, LIKE patterns and substrings as regular expressions for Python and Java alike.

The expressions use only what :mod:`re` (3.11) and ``java.util.regex`` read the same way, are
meant for a full match, and take time proportional to the length of the text times the length of
the pattern: after a wildcard the leftmost occurrence of what follows is taken and never
reconsidered (an atomic group), which loses no match because a wildcard may cover anything
between two occurrences that it may cover at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import cache

_ALL = "(?s)"


class _Gap(Enum):
    """What may stand before a block of a pattern."""

    NONE = ""
    ANYTHING = "**"
    DIRECTORIES = "**/"


@dataclass(slots=True)
class _Block:
    """What stands between two gaps: ``segments`` of fixed length, with a ``*`` between them."""

    gap: _Gap
    segments: list[str] = field(default_factory=lambda: [""])


@dataclass(slots=True)
class _Compiler:
    """Collects a pattern piece by piece and writes the regular expression."""

    blocks: list[_Block] = field(default_factory=lambda: [_Block(_Gap.NONE)])
    prefix: str = ""
    literal_so_far: bool = True

    def literal(self, text: str) -> None:
        self.blocks[-1].segments[-1] += re.escape(text)
        if self.literal_so_far:
            self.prefix += text

    def one(self, regex: str) -> None:
        """Add an expression that matches exactly one character."""
        self.literal_so_far = False
        self.blocks[-1].segments[-1] += regex

    def star(self) -> None:
        self.literal_so_far = False
        self.blocks[-1].segments.append("")

    def gap(self, gap: _Gap) -> None:
        self.literal_so_far = False
        self.blocks.append(_Block(gap))

    def regex(self) -> str:
        *before, last = self.blocks
        settled = (f"(?>{_after_gap(block, last=False)})" for block in before)
        return _ALL + "".join(settled) + _after_gap(last, last=True)


def _after_gap(block: _Block, *, last: bool) -> str:
    if block.gap is _Gap.NONE:
        return _segments(block, last=last)
    if block.gap is _Gap.DIRECTORIES:
        return "(?:.*?/)??" + _segments(block, last=last)
    if len(block.segments) == 1:
        return (".*" if last else ".*?") + block.segments[0]
    # A star stops at a slash, so the leftmost start can be a dead end, but only up to the next
    # slash: one attempt per directory, instead of one per character, finds every match.
    first, *rest = block.segments
    return f"(?:.*?/)??(?>[^/]*?{first})" + _starred(rest, last=last)


def _segments(block: _Block, *, last: bool) -> str:
    first, *rest = block.segments
    return first + _starred(rest, last=last)


def _starred(segments: list[str], *, last: bool) -> str:
    if not segments:
        return ""
    if not last:
        return "".join(f"(?>[^/]*?{segment})" for segment in segments)
    *inner, end = segments
    return _starred(inner, last=False) + f"[^/]*{end}"


def glob_regex(glob: str) -> tuple[str, str]:
    """Translate a glob over paths.

    ``*`` is any run of characters without ``/``; ``**`` any run at all; ``**/`` at the start or
    after a ``/`` is any number of whole directories, none included; ``?`` one character other
    than ``/``; ``[a-z]`` one of a class and ``[!a-z]`` one outside it, neither ever ``/``. There
    is no escape character: ``[*]``, ``[?]`` and ``[[]`` stand for themselves.

    Returns:
        The regular expression and the literal text that every match starts with.

    Raises:
        ValueError: if a class is not closed, or a range in it runs backwards.
    """
    compiler = _Compiler()
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            at = _stars(compiler, glob, at)
        elif char == "?":
            compiler.one("[^/]")
            at += 1
        elif char == "[":
            regex, at = _class(glob, at)
            compiler.one(regex)
        else:
            compiler.literal(char)
            at += 1
    return compiler.regex(), compiler.prefix


def _stars(compiler: _Compiler, glob: str, start: int) -> int:
    """Take the run of stars at ``start``; return where the pattern goes on."""
    end = start
    while end < len(glob) and glob[end] == "*":
        end += 1
    if end - start == 1:
        compiler.star()
        return end
    if glob[end : end + 1] == "/" and (start == 0 or glob[start - 1] == "/"):
        compiler.gap(_Gap.DIRECTORIES)
        return end + 1
    compiler.gap(_Gap.ANYTHING)
    return end


def _class(glob: str, start: int) -> tuple[str, int]:
    """Read the class at ``start``; return its expression and where the pattern goes on."""
    first = start + 1
    negated = glob[first : first + 1] == "!"
    if negated:
        first += 1
    end = glob.find("]", first + 1)
    if end < 0:
        raise ValueError(f"the [ at position {start} is not closed; write [[] for a literal one")
    body = glob[first:end]
    ranges = []
    at = 0
    while at < len(body):
        low = high = body[at]
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            high = body[at + 2]
            at += 2
        at += 1
        if low > high:
            raise ValueError(f"the range {low}-{high} runs backwards")
        ranges.append(_member(low) if low == high else f"{_member(low)}-{_member(high)}")
    return f"(?!/)[{'^' if negated else ''}{''.join(ranges)}]", end + 1


def like_regex(pattern: str) -> tuple[str, str]:
    r"""Translate an SQL LIKE pattern: ``%`` any run, ``_`` one character, ``\`` the escape.

    Returns:
        The regular expression and the literal text that every match starts with.

    Raises:
        ValueError: if a backslash stands before anything but ``%``, ``_`` or a backslash.
    """
    compiler = _Compiler()
    chars = iter(pattern)
    for char in chars:
        if char == "%":
            compiler.gap(_Gap.ANYTHING)
        elif char == "_":
            compiler.one(".")
        elif char != "\\":
            compiler.literal(char)
        elif (escaped := next(chars, "")) and escaped in "%_\\":
            compiler.literal(escaped)
        else:
            raise ValueError(r"a backslash may only stand before %, _ or another backslash")
    return compiler.regex(), compiler.prefix


def substring_regex(text: str) -> str:
    """Match strings that contain ``text`` in any case, by simple folding of each character."""
    compiler = _Compiler()
    compiler.gap(_Gap.ANYTHING)
    for char in text:
        same = _case_variants().get(char, char)
        if len(same) == 1:
            compiler.literal(char)
        else:
            compiler.one(f"[{''.join(map(_member, same))}]")
    compiler.gap(_Gap.ANYTHING)
    return compiler.regex()


def _member(char: str) -> str:
    return "\\" + char if char.isascii() and not char.isalnum() else char


# The two engines carry different versions of Unicode; spelling the variants out keeps one
# meaning. The last cased characters (Adlam) end below this bound.
_CASED_BELOW = 0x1F000


@cache
def _case_variants() -> dict[str, str]:
    """Map every character that has case to all characters it equals when case is ignored."""
    classes: dict[str, list[str]] = {}
    for char in map(chr, range(_CASED_BELOW)):
        classes.setdefault(_folded(char), []).append(char)
    return {char: "".join(same) for same in classes.values() if len(same) > 1 for char in same}


def _folded(char: str) -> str:
    """Fold to one character, as Unicode's simple case folding does; full folding may give more."""
    return next(same for same in (char.casefold(), char.lower(), char) if len(same) == 1)
