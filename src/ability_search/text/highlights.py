"""Highlights: the parts of a text that match a query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ability_search.text.analyzer import Analyzer

HIGHLIGHTS_LIMIT: Final = 20


@dataclass(frozen=True, slots=True)
class Highlight:
    """A matched part: ``text`` is ``content[start:end]``, offsets in characters."""

    start: int
    end: int
    text: str


def highlights(
    content: str,
    query_terms: Collection[str],
    analyzer: Analyzer,
    *,
    limit: int = HIGHLIGHTS_LIMIT,
) -> list[Highlight]:
    """Return the parts of ``content`` whose terms are among ``query_terms``.

    Parts that overlap, touch, or are separated by a single space or hyphen are merged.

    Args:
        content: the text as stored; offsets refer to it unchanged.
        query_terms: as ``analyzer.query_terms`` returns them.
        analyzer: the collection's analyzer.
        limit: maximum number of highlights; the first ones are returned.

    Returns:
        In order of position; empty if nothing matches.
    """
    merged: list[tuple[int, int]] = []
    for start, end in _matches(content, query_terms, analyzer):
        if merged and _adjoins(content, merged[-1][1], start):
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif len(merged) == limit:
            break
        else:
            merged.append((start, end))
    return [Highlight(start, end, content[start:end]) for start, end in merged[:limit]]


def _matches(
    content: str, query_terms: Collection[str], analyzer: Analyzer
) -> list[tuple[int, int]]:
    wanted = frozenset(query_terms)
    if not wanted:
        return []
    return [(start, end) for term, start, end in analyzer.spans(content) if term in wanted]


def _adjoins(content: str, end: int, start: int) -> bool:
    return start <= end or (start == end + 1 and (content[end] == "-" or content[end].isspace()))
