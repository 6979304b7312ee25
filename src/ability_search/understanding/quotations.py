"""Quotations in a query, whose words are taken literally."""

from __future__ import annotations

import re

_OPENING = re.compile("[\"“„«`'‘]")
_END = {
    opening: re.compile(f"[{closing}\n]")
    for opening, closing in {
        '"': '"', "“": "”", "„": "“”", "«": "»", "`": "`", "'": "'", "‘": "’",
    }.items()
}  # fmt: skip
_BETWEEN_WORDS = "'‘"
"""Marks that are an apostrophe where they touch the letters of a word from outside."""
_WORD = re.compile(r"\w")


def masked(text: str) -> str:
    """Return ``text`` with each quotation, its marks included, as one word of the same length.

    Offsets are preserved. Apostrophes within words and unclosed quotation marks do not count.
    """
    parts: list[str] = []
    done = 0
    ends: dict[str, int] = {}
    for match in _OPENING.finditer(text):
        start = match.start()
        if start < done:
            continue
        mark = match[0]
        if ends.get(mark, 0) <= start:
            end = _END[mark].search(text, start + 1)
            ends[mark] = end.start() if end else len(text)
        if _is_quotation(text, start, ends[mark]):
            parts += (text[done:start], "Q" * (ends[mark] + 1 - start))
            done = ends[mark] + 1
    return "".join((*parts, text[done:]))


def _is_quotation(text: str, start: int, end: int) -> bool:
    """Return whether the mark at ``end`` closes a quotation that the mark at ``start`` opens."""
    if end == len(text) or text[end] == "\n" or end == start + 1:
        return False
    return text[start] not in _BETWEEN_WORDS or not (
        (start > 0 and _WORD.match(text, start - 1)) or _WORD.match(text, end + 1)
    )
