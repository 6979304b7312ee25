"""Passages -> the sentences in them that a reader would call sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ability_search.documents import Passage
from ability_search.text.characters import classify
from ability_search.text.chunkers import boundaries

LONGEST = 500
"""Characters of a sentence; a longer one is cut."""

_FENCE = re.compile(
    r"^ {0,3}(?P<mark>```++|~~~++)[^\n]*+\n.*?(?:^ {0,3}(?P=mark)[`~]*[ \t]*$|\Z)", re.M | re.S
)
_NO_PROSE = re.compile(
    r"^[ \t]*(?:#{1,6}(?:[ \t].*)?|[|].*|[^\w\s]+[ \t]*|\.\. .*|<!--.*|:\w+:.*)$", re.MULTILINE
)
"""Headings, rows of tables, rules and underlines, directives, comments, fields."""
_BLOCK = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+\u2022]|\d{1,3}[.)])[ \t])|\u2029|\f")
_MARKER = re.compile(r"^\s*(?:[-*+\u2022]|\d{1,3}[.)]|>)+[ \t]+")
_TARGET = r"\([^()\s]*(?:[ \t]+\"[^\"]*\")?\)"
_IMAGE = re.compile(rf"!\[[^\[\]]*\]{_TARGET}")
_LINK = re.compile(rf"\[([^\[\]]*)\]{_TARGET}")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|\*\*|__|`+")
_LONE_STOP = re.compile(r" [.!?](?= )")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+")

_FEWEST_WORDS = 4
_FEWEST_SIGNS = 8
"""Han characters, kana or Hangul; their words are not parted by spaces."""
_LETTERS = 0.6
"""Least share of letters and spaces in a sentence; code and numbers have less."""


class Sentence(NamedTuple):
    """A sentence and the headings above it, outermost first, joined by `` > ``."""

    text: str
    breadcrumb: str


def sentences(passages: Sequence[Passage]) -> Iterator[Sentence]:
    """The sentences of prose, in their order, each once.

    Left out are code blocks, headings, tables, and what is hardly made of words. Markdown's marks
    and tags are removed, white space is one space.

    Args:
        passages: Of one document.
    """
    seen: set[str] = set()
    for passage in passages:
        if passage.language is not None:
            continue
        text = _NO_PROSE.sub("\n", _FENCE.sub("\n\n", passage.content))
        for block in _BLOCK.split(text):
            for found in _of_block(block):
                if found not in seen:
                    seen.add(found)
                    yield Sentence(found, passage.breadcrumb)


def _of_block(block: str) -> Iterator[str]:
    shown = _LINK.sub(r"\1", _IMAGE.sub("", _MARKER.sub("", block)))
    text = _SPACE.sub(" ", _MARKUP.sub("", shown)).strip()
    for start, end in _spans(text):
        if end - start > LONGEST:
            end = boundaries.cut_before(text, start, start + LONGEST)
        found = text[start:end].strip()
        if _is_sentence(found):
            yield found


def _spans(text: str) -> Iterator[boundaries.Span]:
    """Sentences; a full stop that stands by itself ends one, whatever follows."""
    start = 0
    for match in _LONE_STOP.finditer(text):
        yield from boundaries.sentences(text, start, match.end())
        start = match.end()
    yield from boundaries.sentences(text, start, len(text))


def joined(parts: Sequence[str]) -> str:
    """Sentences as one text; Chinese and Japanese ones without space between them."""
    text = ""
    for part in parts:
        text += f" {part}" if text and text[-1].isascii() else part
    return text


def _is_sentence(text: str) -> bool:
    classes = classify(text)
    letters = sum(letter in "aAmhkgt " for letter in classes)
    if letters < _LETTERS * len(classes):
        return False
    unspaced = sum(letter in "hkg" for letter in classes)
    return unspaced >= _FEWEST_SIGNS or len(_WORD.findall(text)) >= _FEWEST_WORDS
