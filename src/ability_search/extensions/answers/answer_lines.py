"""Lines of a language model's answer, without what only lays them out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARK = re.compile(r"^\s*(?:[-*+\u2022\u2013\u2014]+|\(?\d{1,2}[.):])\s+")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_WORD = re.compile(r"\w")
_COPIED = 4
"""Words from which a line that stands in the instruction too is a copy of it."""
_QUOTES = " \t'\"`*_[]\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"


def answer_lines(answer: str, instruction: str) -> Iterator[str]:
    """Yield the distinct lines of an answer that have a word, without list marks and quotes.

    Skipped are code fences, lines that end in a colon, which introduce the others, and lines of
    several words that small models copy from the ``instruction``.
    """
    given = instruction.casefold()
    seen = set()
    for line in answer.splitlines():
        text = _MARK.sub("", line).strip(_QUOTES)
        if _FENCE.match(line) or text.endswith(":") or not _WORD.search(text):
            continue
        folded = text.casefold()
        if folded in seen or (len(folded.split()) >= _COPIED and folded in given):
            continue
        seen.add(folded)
        yield text
