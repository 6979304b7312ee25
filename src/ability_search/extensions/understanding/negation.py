"""Negation in a text: ``the cache is not used``. English.

The scope of a negation is found as by NegEx (Chapman et al., A Simple Algorithm for Identifying
Negated Findings and Diseases in Discharge Summaries, 2001): words of one clause, a few words after
one that negates, or before one like ``is not needed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

SCOPE_CHARACTERS: Final = 80
"""Maximum distance of a negation, in characters; at most four words lie between."""

_TURN = r"(?!(?:although|and|because|but|however|only|so|though|which|while)\b)"
_BETWEEN = rf"(?:[^\w'’.;:!?\n]++{_TURN}[\w'’]++)"
_BE_NOT = r"(?:is|are|was|were|been|be)(?:n['’]t|\s+(?:not|never))"


class Cue(NamedTuple):
    """A pattern of words that negate, and texts in which they do and do not negate ``cream``."""

    pattern: str
    example: str
    counterexample: str


def _any_of(cues: Iterable[Cue]) -> str:
    return "|".join(cue.pattern for cue in cues)


BEFORE: Final = (
    Cue(
        r"no|not|never|neither|nor|none|nothing|cannot|\w+n['’]t",
        "a sauce that does not contain any cream",
        "not only cream",
    ),
    Cue(
        r"without|lack(?:s|ed|ing)?|free\s+(?:from|of)|zero|non",
        "lasagne without cream",
        "without further ado. Cream is added",
    ),
    Cue(
        r"avoid(?:s|ed|ing)?|exclud(?:es?|ed|ing)|except(?:\s+for)?|instead\s+of|rather\s+than|unlike",
        "coconut milk instead of cream",
        "instead of whisking by hand, at last add cream",
    ),
)
"""Words that negate what follows."""
BEHIND: Final = (
    Cue(r"[\s-]free\b", "cream-free sauces", "cream and free drinks"),
    Cue(
        rf"{_BETWEEN}{{0,2}}[^\w'’.;:!?\n]++(?:{_BE_NOT}\s+(?:\w+(?:ed|en|wn)|necessary|part)\b"
        r"|(?:is|are|was|were)\s+(?:excluded|avoided|omitted|unnecessary)\b"
        r"|(?:does|do|did)(?:n['’]t|\s+not)\s+(?:apply|exist|matter|occur)\b)",
        "cream is not needed",
        "cream does not mix with lemon",
    ),
)
"""Words that negate what precedes."""

_BEFORE = re.compile(
    rf"(?<![\w'’])(?:{_any_of(BEFORE)}){_BETWEEN}{{0,4}}[^\w'’.;:!?\n]++$", re.IGNORECASE
)
_BEHIND = re.compile(_any_of(BEHIND), re.IGNORECASE)


def is_negated(text: str, start: int, end: int) -> bool:
    """Return whether the words ``text[start:end]`` are within the scope of a negation."""
    before = text[max(0, start - SCOPE_CHARACTERS) : start]
    behind = text[end : end + SCOPE_CHARACTERS]
    return _BEFORE.search(before) is not None or _BEHIND.match(behind) is not None
