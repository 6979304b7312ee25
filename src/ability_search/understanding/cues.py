"""Cues: words with a meaning in a text, each with an example and a counterexample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cue:
    """English words with a meaning.

    Attributes:
        pattern: Regular expression that matches the words.
        example: A text in which they have the meaning.
        counterexample: A text with the same words in which they do not.
    """

    pattern: str
    example: str
    counterexample: str


def any_of(cues: Iterable[Cue]) -> str:
    """Return a pattern that matches as the first of ``cues`` that matches."""
    return "|".join(cue.pattern for cue in cues)
