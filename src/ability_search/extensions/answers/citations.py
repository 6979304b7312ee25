"""Check the sentences of an answer against the passages that they cite. Pure.

The check is lexical: it finds numbers, names and subjects that a passage does not have. It cannot
find a sentence that denies a passage in its own words.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Final, Literal

from pydantic import Field

from ability_search.text.analyzer import Analyzer
from ability_search.text.chunkers.boundaries import sentences
from ability_search.wire import Result

Support = Literal["full", "partial", "none"]

WORDS: Final = 0.6
"""Minimum share of a sentence's words in its passages; measured in docs/ask.md."""

_CITATION: Final = re.compile(r"\s?+\[(\d{1,3}(?:\s?+[,;]\s?+\d{1,3})*+)\]")
_NUMBER: Final = re.compile(r"\d++(?:[.,:]\d++)*+")
_NAME: Final = re.compile(r"(?<=[\w,;:)] )[A-Z][\w'-]*+|\b[A-Za-z]++\d[\w-]*+")
_THOUGHT: Final = re.compile(r"\A\s*+<think>.*?</think>", re.DOTALL)
_DIGITS: Final = re.compile(r"\d++")
_ORPHAN: Final = re.compile(r"\s*+(?:\[\d{1,3}(?:\s?+[,;]\s?+\d{1,3})*+\]\s?+)++[.!?]?+\s*+")


class Sentence(Result):
    """A sentence of an answer, checked against the passages that it cites."""

    text: str = Field(description="The sentence without its citations.")
    citations: list[int] = Field(description="Numbers of its passages, from 1.")
    support: Support = Field(
        description="full: numbers, names and most words are in these passages; partial: too few"
        " words are; none: no word, or a number or a name is not; the answer leaves it out."
    )
    missing: list[str] | None = Field(None, description="What is not in these passages.")


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

    def check(self, sentence: str) -> Sentence:
        """Return a sentence with the passages that it was checked against.

        These are the passages that it cites, if they exist. If they do not support it, or it cites
        none, it is the first passage that supports it in full.
        """
        text = without_citations(sentence)
        every = range(1, len(self._terms) + 1)
        cited = [number for number in cited_numbers(sentence) if number in every]
        found = self._against(text, cited)
        if found.support == "full":
            return found
        others = (self._against(text, [number]) for number in every)
        return next((each for each in others if each.support == "full"), found)

    def _against(self, text: str, cited: list[int]) -> Sentence:
        if not cited:
            return Sentence(text=text, citations=[], support="none")
        there = frozenset().union(*(self._terms[number - 1] for number in cited))
        numbers = self._own_numbers.union(*(self._numbers[number - 1] for number in cited))
        wrong = [number for number in sorted(_numbers(text)) if number not in numbers]
        known = there | self._own
        wrong += [
            name
            for name in _NAME.findall(text)
            if not known.issuperset(self._analyzer.query_terms(name))
        ]
        words = list(dict.fromkeys(self._analyzer.query_terms(text)))
        missing = [word for word in words if word not in there]
        support: Support = "full"
        if wrong or len(missing) == len(words):
            support, missing = "none", list(dict.fromkeys(wrong or missing))
        elif len(words) - len(missing) < WORDS * len(words):
            support = "partial"
        else:
            missing = []
        return Sentence(text=text, citations=cited, support=support, missing=missing or None)


async def cited_sentences(parts: AsyncIterable[str]) -> AsyncGenerator[str]:
    """Yield the sentences of a text that arrives in parts, each with the citations that follow it.

    A sentence is complete once the next one has begun, since citations may follow its end. What a
    model thinks before its answer is left out.
    """
    text = ""
    async for part in parts:
        text = _THOUGHT.sub("", text + part)
        found = _with_citations(text)
        if len(found) > 1 and not found[-1].startswith("[") and not _thinks(text):
            for sentence in found[:-1]:
                yield sentence
            text = found[-1] + text[len(text.rstrip()) :]
    for sentence in [] if _thinks(text) else _with_citations(text):
        yield sentence


def _thinks(text: str) -> bool:
    return text.lstrip().startswith("<think>")


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
