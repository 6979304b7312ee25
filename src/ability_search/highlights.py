"""Where a text answers a query: matched places, and the window that shows most of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ability_search.analysis import Analyzer

HIGHLIGHTS_LIMIT: Final = 20
SNIPPET_LENGTH: Final = 240


@dataclass(frozen=True, slots=True)
class Highlight:
    """A matched place: ``text`` is ``content[start:end]``, offsets in characters."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """A window of a content: ``text`` is ``content[start:end]``; ``terms`` matched within it."""

    start: int
    end: int
    text: str
    terms: int


def highlights(
    content: str,
    query_terms: Collection[str],
    analyzer: Analyzer,
    *,
    limit: int = HIGHLIGHTS_LIMIT,
) -> list[Highlight]:
    """Return the places of ``content`` whose terms are among ``query_terms``.

    Places that overlap, touch, or have a single space or hyphen between them are one.

    Args:
        content: the text as stored; offsets are into it as it is.
        query_terms: as ``analyzer.query_terms`` gives them.
        analyzer: the collection's.
        limit: number of highlights returned, the first ones.

    Returns:
        In order of position; empty if nothing matches.
    """
    merged: list[tuple[int, int]] = []
    for start, end, _ in _matches(content, query_terms, analyzer):
        if merged and _adjoins(content, merged[-1][1], start):
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif len(merged) == limit:
            break
        else:
            merged.append((start, end))
    return [Highlight(start, end, content[start:end]) for start, end in merged[:limit]]


def snippet(
    content: str,
    query_terms: Collection[str],
    analyzer: Analyzer,
    *,
    length: int = SNIPPET_LENGTH,
) -> Snippet:
    """Return the window of at most ``length`` characters with the most different terms.

    The first of equally good windows; it has its matches in the middle and does not cut words
    where there is a space to cut at. Without a match it is the beginning of ``content``.
    """
    window: deque[tuple[int, int, str]] = deque()
    inside: Counter[str] = Counter()
    best = (0, 0, 0)
    for match in _matches(content, query_terms, analyzer):
        window.append(match)
        inside[match[2]] += 1
        reach = max(match[1], window[0][1])
        while reach - window[0][0] > length and len(window) > 1:
            dropped = window.popleft()[2]
            inside[dropped] -= 1
            if not inside[dropped]:
                del inside[dropped]
        if len(inside) > best[0]:
            best = (len(inside), window[0][0], reach)
    terms, first, last = best
    start, end = _around(content, first, last, length)
    return Snippet(start, end, content[start:end], terms)


def _matches(
    content: str, query_terms: Collection[str], analyzer: Analyzer
) -> list[tuple[int, int, str]]:
    wanted = frozenset(query_terms)
    if not wanted:
        return []
    return [(start, end, term) for term, start, end in analyzer.spans(content) if term in wanted]


def _adjoins(content: str, end: int, start: int) -> bool:
    return start <= end or (start == end + 1 and (content[end] == "-" or content[end].isspace()))


def _around(content: str, first: int, last: int, length: int) -> tuple[int, int]:
    """Widen the matched stretch to ``length`` and draw its ends back to spaces."""
    spare = max(0, length - (last - first))
    start = max(0, min(first - spare // 2, len(content) - length))
    end = min(len(content), start + length)
    if start > 0 and not content[start - 1].isspace():
        start = next((i + 1 for i in range(start, first) if content[i].isspace()), start)
    if end < len(content) and not content[end].isspace():
        end = next((i for i in range(end - 1, max(last, start), -1) if content[i].isspace()), end)
    while start < first and content[start].isspace():
        start += 1
    return start, end
