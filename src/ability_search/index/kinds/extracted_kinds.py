"""Aspects of a document from its own words, without any model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ability_search.documents import Document, Passage
from ability_search.index.kinds.keyphrases import keywords
from ability_search.index.kinds.sentences import Sentence, joined, sentences

_MOST_HEADINGS = 12
_SUMMARY_SENTENCES = 3
_SUMMARY_CHARACTERS = 500
_MOST_PROPOSITIONS = 128
_SEPARATOR = " > "
_NUMBERING = re.compile(r"^[\W\d_]+|[\W_]+$")
_BOILERPLATE = """
    acknowledgements, acknowledgments, appendix, authors, badges, bibliography, changelog, contact,
    contents, contributing, contributors, copyright, credits, disclaimer, footnotes,
    further reading, imprint, index, licence, license, navigation, references, release notes,
    see also, table of contents, toc, 目录, 目次, 参考文献, 參考文獻, 謝辞, 许可证
"""
"""Headings of sections that do not say what a document is about."""
_LEFT_OUT = frozenset(heading.strip() for heading in _BOILERPLATE.split(","))


class Statement(NamedTuple):
    """Something said of a document, with the headings above it where they give it context."""

    text: str
    breadcrumb: str = ""


def extracted(kind: str, document: Document, passages: Sequence[Passage]) -> list[Statement]:
    """Extract the kinds of a document from its own words; a kind may be empty.

    - ``title``: the title and the first twelve headings.
    - ``summary``: the first sentences, three or 500 characters, without sections like a table of
      contents or a licence; none where they are all of the text.
    - ``keywords``: keyphrases (:mod:`.keywords`), of code its names.
    - ``propositions``: each of the first 128 sentences by itself, with the headings above it.

    Args:
        kind: One of :data:`~ability_search.documents.ASPECTS`.
        document: The document.
        passages: What it was cut into.
    """
    said = _EXTRACTORS[kind](document, passages)
    whole = "".join(document.content.split())
    return [each for each in said if each.text and "".join(each.text.split()) != whole]


def _title(document: Document, passages: Sequence[Passage]) -> Iterator[Statement]:
    seen = {document.title.strip(): None}
    for passage in passages:
        for heading in passage.breadcrumb.split(_SEPARATOR):
            seen.setdefault(heading.strip())
    lines = [line for line in seen if line]
    yield Statement("\n".join(lines[: _MOST_HEADINGS + 1]))


def _summary(document: Document, passages: Sequence[Passage]) -> Iterator[Statement]:
    telling = [passage for passage in passages if not _is_boilerplate(passage.breadcrumb)]
    chosen: list[str] = []
    for sentence in islice(_sentences(document, telling), _SUMMARY_SENTENCES):
        if chosen and sum(map(len, chosen)) + len(sentence.text) > _SUMMARY_CHARACTERS:
            break
        chosen.append(sentence.text)
    yield Statement(joined(chosen))


def _keywords(document: Document, _passages: Sequence[Passage]) -> Iterator[Statement]:
    yield Statement(", ".join(keywords(f"{document.title}\n{document.content}")))


def _propositions(document: Document, passages: Sequence[Passage]) -> Iterator[Statement]:
    found = list(islice(_sentences(document, passages), _MOST_PROPOSITIONS))
    if len(found) > 1:
        yield from (Statement(*sentence) for sentence in found)


def _sentences(document: Document, passages: Sequence[Passage]) -> Iterator[Sentence]:
    """Of texts that have any: neither code nor data."""
    if document.language is None and document.format not in ("code", "json", "csv"):
        yield from sentences(passages)


def _is_boilerplate(breadcrumb: str) -> bool:
    return any(
        _NUMBERING.sub("", heading).casefold() in _LEFT_OUT
        for heading in breadcrumb.split(_SEPARATOR)
    )


_EXTRACTORS: Mapping[str, Callable[[Document, Sequence[Passage]], Iterator[Statement]]] = {
    "title": _title,
    "summary": _summary,
    "keywords": _keywords,
    "propositions": _propositions,
}
