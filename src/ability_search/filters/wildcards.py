r"""Globs, LIKE patterns and substrings as regular expressions for both Python and Java.

The expressions use only syntax that :mod:`re` (3.11) and ``java.util.regex`` interpret alike, are
meant for a full match, and take time proportional to the length of the text times the length of
the pattern: after a wildcard, the leftmost occurrence of the following text is taken and never
reconsidered (an atomic group). This loses no match, because a wildcard may cover any text between
two occurrences that it may cover at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

_ALL = "(?s)"
_ANYTHING = ".*?"
_DIRECTORIES = "(?:.*?/)??"
_GLOB = re.compile(
    r"(?P<directories>(?:(?<=/)|\A)\*{2,}/)|(?P<anything>\*{2,})|(?P<star>\*)|(?P<one>\?)"
    r"|\[(?P<negated>!?+)(?P<members>.[^\]]*)\]|(?P<open>\[.*)|[^*?\[]+",
    re.DOTALL,
)
_MEMBERS = re.compile("(.)-(.)|(.)", re.DOTALL)


@dataclass(slots=True)
class _Block:
    """The part after a gap: ``segments`` of fixed length, with a ``*`` between them."""

    gap: str
    segments: list[str] = field(default_factory=lambda: [""])


@dataclass(slots=True)
class _Compiler:
    """A builder that collects a pattern step by step and produces the regular expression."""

    blocks: list[_Block] = field(default_factory=lambda: [_Block("")])
    prefix: str = ""
    literal_so_far: bool = True
    ignore_case: bool = False
    """Whether literals match by simple case folding."""

    def literal(self, text: str) -> None:
        for char in text:
            same = _case_variants().get(char, char) if self.ignore_case else char
            if len(same) > 1:
                self.one(f"[{''.join(map(_member, same))}]")
                continue
            self.blocks[-1].segments[-1] += re.escape(char)
            if self.literal_so_far:
                self.prefix += char

    def one(self, regex: str) -> None:
        """Add an expression that matches exactly one character."""
        self.literal_so_far = False
        self.blocks[-1].segments[-1] += regex

    def star(self) -> None:
        self.literal_so_far = False
        self.blocks[-1].segments.append("")

    def gap(self, gap: str) -> None:
        self.literal_so_far = False
        self.blocks.append(_Block(gap))

    def regex(self) -> str:
        *before, last = self.blocks
        atomic = (f"(?>{_after_gap(block, last=False)})" for block in before)
        return _ALL + "".join(atomic) + _after_gap(last, last=True)


def _after_gap(block: _Block, *, last: bool) -> str:
    first, *rest = block.segments
    if block.gap == _ANYTHING and not rest:
        return (".*" if last else _ANYTHING) + first
    end = f"[^/]*{rest.pop()}" if last and rest else ""
    starred = "".join(f"(?>[^/]*?{segment})" for segment in rest) + end
    if block.gap != _ANYTHING:
        return block.gap + first + starred
    # A star stops at a slash, so the leftmost start may fail, but only up to the next slash:
    # one attempt per directory, instead of one per character, finds every match.
    return f"{_DIRECTORIES}(?>[^/]*?{first}){starred}"


def glob_regex(glob: str) -> tuple[str, str]:
    """Translate a path glob to a regular expression.

    ``*`` matches any run of characters without ``/``; ``**`` any run at all; ``**/`` at the start
    or after a ``/`` any number of whole directories, including none; ``?`` one character other
    than ``/``; ``[a-z]`` one of a class and ``[!a-z]`` one outside it, neither ever ``/``. There
    is no escape character: write ``[*]``, ``[?]`` and ``[[]`` for the literal characters.

    Returns:
        The regular expression and the literal text that every match starts with.

    Raises:
        ValueError: if a class is not closed, or a range in it is reversed.
    """
    compiler = _Compiler()
    for token in _GLOB.finditer(glob):
        match token.lastgroup:
            case "directories":
                compiler.gap(_DIRECTORIES)
            case "anything":
                compiler.gap(_ANYTHING)
            case "star":
                compiler.star()
            case "one":
                compiler.one("[^/]")
            case "members":
                ranges = []
                for low, high, single in _MEMBERS.findall(token["members"]):
                    if low > high:
                        raise ValueError(f"the range {low}-{high} is reversed")
                    ranges.append(_member(single) if single else f"{_member(low)}-{_member(high)}")
                compiler.one(f"(?!/)[{'^' if token['negated'] else ''}{''.join(ranges)}]")
            case "open":
                raise ValueError(
                    f"the [ at position {token.start()} is not closed; write [[] for a literal ["
                )
            case _:
                compiler.literal(token[0])
    return compiler.regex(), compiler.prefix


def like_regex(pattern: str, *, ignore_case: bool = False) -> tuple[str, str]:
    r"""Translate an SQL LIKE pattern: ``%`` any run, ``_`` one character, ``\`` escapes.

    Returns:
        The regular expression and the literal text that every match starts with.

    Raises:
        ValueError: if a backslash precedes anything but ``%``, ``_`` or a backslash.
    """
    compiler = _Compiler(ignore_case=ignore_case)
    chars = iter(pattern)
    for char in chars:
        if char == "%":
            compiler.gap(_ANYTHING)
        elif char == "_":
            compiler.one(".")
        elif char != "\\":
            compiler.literal(char)
        elif (escaped := next(chars, "")) and escaped in "%_\\":
            compiler.literal(escaped)
        else:
            raise ValueError(r"a backslash may only precede %, _ or another backslash")
    return compiler.regex(), compiler.prefix


def substring_regex(text: str) -> str:
    """Return an expression that matches strings containing ``text``, by simple case folding."""
    compiler = _Compiler(ignore_case=True)
    compiler.gap(_ANYTHING)
    compiler.literal(text)
    compiler.gap(_ANYTHING)
    return compiler.regex()


def _member(char: str) -> str:
    return "\\" + char if char.isascii() and not char.isalnum() else char


# The two engines have different Unicode versions; listing the variants makes them agree. The last
# cased characters (Adlam) end below this bound.
_CASED_BELOW = 0x1F000


@cache
def _case_variants() -> dict[str, str]:
    """Map every cased character to all characters that equal it when case is ignored."""
    classes: dict[str, list[str]] = {}
    for char in map(chr, range(_CASED_BELOW)):
        classes.setdefault(_folded(char), []).append(char)
    return {char: "".join(same) for same in classes.values() if len(same) > 1 for char in same}


def _folded(char: str) -> str:
    """Apply Unicode's simple case folding, to one character; full folding may give more."""
    return next(same for same in (char.casefold(), char.lower(), char) if len(same) == 1)
