"""Kinds extracted from the words of a document, without a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

from ability_search.documents import Document, Passage
from ability_search.extensions.kinds.keyphrases import keywords
from ability_search.text.characters import classify
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.markdown_sections import SEPARATOR

_MOST_HEADINGS = 12
_SUMMARY_SENTENCES = 3
_SUMMARY_CHARACTERS = 500
_MOST_PROPOSITIONS = 128
_NUMBERING = re.compile(r"^[\W\d_]+|[\W_]+$")
_BOILERPLATE = """
    acknowledgements, acknowledgments, appendix, authors, badges, bibliography, changelog, contact,
    contents, contributing, contributors, copyright, credits, disclaimer, footnotes,
    further reading, imprint, index, licence, license, navigation, references, release notes,
    see also, table of contents, toc, 目录, 目次, 参考文献, 參考文獻, 謝辞, 许可证
"""
"""Headings of sections that do not describe the document."""
_LEFT_OUT = frozenset(heading.strip() for heading in _BOILERPLATE.split(","))

LONGEST = 500
"""Maximum characters of a sentence; a longer one is cut."""

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
_FEWEST_UNSPACED = 8
"""Minimum Han, kana or Hangul characters of a sentence without spaces."""
_LETTERS = 0.6
"""Minimum share of letters and spaces in a sentence; code and numbers have less."""


class CandidateSentence(NamedTuple):
    """A text about a document, with the headings above it joined by `` > ``, outermost first.

    ``chunk`` is the index of the passage that it is about, if it is one.
    """

    text: str
    breadcrumb: str = ""
    chunk: int | None = None


def extracted(
    kind: str, document: Document, passages: Sequence[Passage]
) -> list[CandidateSentence]:
    """Extract one kind from a document; the result may be empty.

    - ``title``: the title and the first twelve headings.
    - ``summary``: the first sentences, up to three or 500 characters, without sections like a table
      of contents or a licence.
    - ``keywords``: keyphrases (:mod:`.keyphrases`); for code, its names.
    - ``propositions``: the first 128 sentences separately, with the headings above them.

    A text that is the whole content is dropped.

    Args:
        kind: One of :data:`~ability_search.documents.KINDS`.
        document: The document.
        passages: The passages of the document.
    """
    said = _EXTRACTORS[kind](document, passages)
    whole = "".join(document.content.split())
    return [each for each in said if each.text and "".join(each.text.split()) != whole]


def _title(document: Document, passages: Sequence[Passage]) -> Iterator[CandidateSentence]:
    seen = {document.title.strip(): None}
    for passage in passages:
        for heading in passage.breadcrumb.split(SEPARATOR):
            seen.setdefault(heading.strip())
    lines = [line for line in seen if line]
    yield CandidateSentence("\n".join(lines[: _MOST_HEADINGS + 1]))


def _summary(document: Document, passages: Sequence[Passage]) -> Iterator[CandidateSentence]:
    telling = [
        passage
        for passage in passages
        if _LEFT_OUT.isdisjoint(
            _NUMBERING.sub("", heading).casefold()
            for heading in passage.breadcrumb.split(SEPARATOR)
        )
    ]
    chosen: list[str] = []
    for sentence in islice(_sentences(document, telling), _SUMMARY_SENTENCES):
        if chosen and sum(map(len, chosen)) + len(sentence.text) > _SUMMARY_CHARACTERS:
            break
        chosen.append(sentence.text)
    text = ""
    for part in chosen:
        # With spaces except after Chinese and Japanese sentences.
        text += f" {part}" if text and text[-1].isascii() else part
    yield CandidateSentence(text)


def _keywords(document: Document, passages: Sequence[Passage]) -> Iterator[CandidateSentence]:
    body = document.content[passages[0].start :] if passages else ""
    yield CandidateSentence(", ".join(keywords(f"{document.title}\n{body}")))


def _propositions(document: Document, passages: Sequence[Passage]) -> Iterator[CandidateSentence]:
    found = list(islice(_sentences(document, passages), _MOST_PROPOSITIONS))
    if len(found) > 1:
        yield from found


def _sentences(document: Document, passages: Sequence[Passage]) -> Iterator[CandidateSentence]:
    """Yield the distinct sentences of prose in order.

    Code blocks, headings, tables and texts with hardly any words are left out. Markdown markup and
    tags are removed, and whitespace is collapsed.
    """
    if document.language is not None or document.format in ("code", "json", "csv"):
        return
    seen: set[str] = set()
    for index, passage in enumerate(passages):
        if passage.language is not None:
            continue
        text = _NO_PROSE.sub("\n", _FENCE.sub("\n\n", passage.content))
        for block in _BLOCK.split(text):
            for found in _of_block(block):
                if found not in seen:
                    seen.add(found)
                    yield CandidateSentence(found, passage.breadcrumb, index)


def _of_block(block: str) -> Iterator[str]:
    shown = _LINK.sub(r"\1", _IMAGE.sub("", _MARKER.sub("", block)))
    text = _SPACE.sub(" ", _MARKUP.sub("", shown)).strip()
    # A full stop between spaces ends a sentence regardless of the next character.
    stops = [0, *(match.end() for match in _LONE_STOP.finditer(text)), len(text)]
    sentences = chain(*(boundaries.sentences(text, *pair) for pair in pairwise(stops)))
    for start, end in sentences:
        if end - start > LONGEST:
            end = boundaries.cut_before(text, start, start + LONGEST)
        found = text[start:end].strip()
        classes = classify(found)
        unspaced = sum(letter in "hkg" for letter in classes)
        enough = unspaced >= _FEWEST_UNSPACED or len(_WORD.findall(found)) >= _FEWEST_WORDS
        if enough and sum(letter in "aAmhkgt " for letter in classes) >= _LETTERS * len(classes):
            yield found


_EXTRACTORS: Mapping[str, Callable[[Document, Sequence[Passage]], Iterator[CandidateSentence]]] = {
    "title": _title,
    "summary": _summary,
    "keywords": _keywords,
    "propositions": _propositions,
}
