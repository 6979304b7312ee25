"""Check the sentences of an answer against the passages that they cite. Pure.

The check is lexical: it finds numbers, names and subjects that a passage does not have. It cannot
find a sentence that denies a passage in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ability_search.text.analyzer import Analyzer
from ability_search.text.chunkers.boundaries import sentences

WORDS: Final = 0.6
"""Minimum share of a sentence's words in its passages; measured in docs/ask.md."""

_CITATION: Final = re.compile(r"\s?+\[(\d{1,3}(?:\s?+[,;]\s?+\d{1,3})*+)\]")
_NUMBER: Final = re.compile(r"\d++(?:[.,:]\d++)*+")
_NAME: Final = re.compile(r"(?<=[\w,;:)] )[A-Z][\w'-]*+|\b[A-Za-z]++\d[\w-]*+")
_THOUGHT: Final = ("<think>", "</think>")
"""Marks of what some models write before their answer; it is left out."""
_DIGITS: Final = re.compile(r"\d++")
_ORPHAN: Final = re.compile(r"\s*+(?:\[\d{1,3}(?:\s?+[,;]\s?+\d{1,3})*+\]\s?+)++[.!?]?+\s*+")


@dataclass(frozen=True, slots=True)
class Checked:
    """A sentence of an answer, without its citations.

    Attributes:
        text: The sentence.
        citations: Numbers of the passages that it is checked against, from 1, ascending.
        support: ``full``; ``partial`` if too few of its words are in these passages; ``none`` if
            none is, if a number or a name is not, or if no passage is cited and none has its words.
        missing: Numbers, names and, unless the support is full, terms that are not in them.
    """

    text: str
    citations: tuple[int, ...]
    support: Literal["full", "partial", "none"]
    missing: tuple[str, ...] = ()


class Checker:
    """Checks sentences against passages.

    Args:
        question: The question; names and numbers in it need not be in a passage.
        passages: Texts of the passages, with title and metadata, in the order of their numbers.
        analyzer: Analyzer of their language.
    """

    def __init__(self, question: str, passages: Sequence[str], analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._terms = [frozenset(analyzer.terms(text)) for text in passages]
        self._own = frozenset(analyzer.terms(question))
        self._numbers = [_numbers(text) for text in passages]
        self._own_numbers = _numbers(question)

    def check(self, sentence: str) -> Checked:
        """Return a sentence with the passages that it was checked against.

        These are the passages that it cites, if they exist. If they do not support it, or it cites
        none, it is the first passage that supports it in full.
        """
        text = without_citations(sentence)
        every = range(1, len(self._terms) + 1)
        cited = tuple(number for number in cited_numbers(sentence) if number in every)
        found = self._against(text, cited) if cited else Checked(text, (), "none")
        if found.support == "full":
            return found
        others = (self._against(text, (number,)) for number in every)
        return next((each for each in others if each.support == "full"), found)

    def _against(self, text: str, cited: tuple[int, ...]) -> Checked:
        there = frozenset().union(*(self._terms[number - 1] for number in cited))
        numbers = self._own_numbers.union(*(self._numbers[number - 1] for number in cited))
        wrong = [number for number in sorted(_numbers(text)) if number not in numbers]
        known = there | self._own
        wrong += [
            name
            for name in _NAME.findall(text)
            if not known.issuperset(self._analyzer.query_terms(name))
        ]
        words = self._words(text)
        absent = [word for word in words if word not in there]
        if wrong or len(absent) == len(words):
            return Checked(text, cited, "none", tuple(dict.fromkeys(wrong or absent)))
        if len(words) - len(absent) < WORDS * len(words):
            return Checked(text, cited, "partial", tuple(absent))
        return Checked(text, cited, "full")

    def _words(self, text: str) -> list[str]:
        return list(dict.fromkeys(self._analyzer.query_terms(text)))


class SentenceReader:
    """Cuts a text that arrives in parts into sentences, each with the citations that follow it."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, part: str) -> list[str]:
        """Add a part; return the sentences that are now complete.

        A sentence is complete once the next one has begun, since citations may follow its end.
        """
        self._text += part
        thought, closed, answer = self._text.partition(_THOUGHT[1])
        if thought.lstrip().startswith(_THOUGHT[0]):
            self._text = answer if closed else self._text
        found = _with_citations(self._text)
        if len(found) < 2 or found[-1].startswith("[") or self._thinks:
            return []
        self._text = found[-1] + self._text[len(self._text.rstrip()) :]
        return found[:-1]

    def rest(self) -> list[str]:
        """Return the sentences that are left at the end of the text."""
        return [] if self._thinks else _with_citations(self._text)

    @property
    def _thinks(self) -> bool:
        return self._text.lstrip().startswith(_THOUGHT[0])


def _with_citations(text: str) -> list[str]:
    found: list[str] = []
    for line in text.splitlines():
        for start, end in sentences(line, 0, len(line)):
            sentence = line[start:end]
            leading = _ORPHAN.match(sentence)
            if leading and found:
                found[-1] += f" {leading[0].strip()}"
                sentence = sentence[leading.end() :]
            if sentence.strip():
                found.append(sentence)
    return found


def without_citations(sentence: str) -> str:
    """Return a sentence without the numbers of the passages that it cites."""
    return _CITATION.sub("", sentence).strip()


def cited_numbers(sentence: str) -> list[int]:
    """Return the numbers of the passages that a sentence cites, as ``[1]`` or ``[1, 3]``.

    Example:
        >>> cited_numbers("It runs at two [3], on Sundays at four [1, 3].")
        [1, 3]
    """
    groups = _CITATION.findall(sentence)
    return sorted({int(number) for group in groups for number in _DIGITS.findall(group)})


def _numbers(text: str) -> frozenset[str]:
    return frozenset(number.replace(",", "") for number in _NUMBER.findall(text))
