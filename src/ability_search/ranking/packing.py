"""The best hits within a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ability_search.chunking import TokenCounter
from ability_search.chunking.boundaries import cut_before, sentences

Fit = Literal["whole", "content", "start", "nothing"]
"""How much of a hit is kept: all, all but its context, the beginning of its content, nothing."""


def fitted(sizes: Sequence[tuple[int, int]], budget: int) -> list[Fit]:
    """How much of each hit fits into a budget.

    Best first, each takes what is left. One that does not fit gives up its context, and else its
    place to those after it; but of the first hit at least the beginning is kept.

    Args:
        sizes: Tokens of the content and of the context of each hit, best first.
        budget: Tokens altogether.
    """
    found: list[Fit] = []
    left = budget
    for content, context in sizes:
        if content + context <= left:
            found.append("whole")
            left -= content + context
        elif content <= left:
            found.append("content")
            left -= content
        elif not found:
            found.append("start")
            left = 0
        else:
            found.append("nothing")
    return found


def beginning(text: str, budget: int, counter: TokenCounter) -> str:
    """The beginning of a text that has at most so many tokens.

    It ends with a sentence if that keeps half of what fits, else with a word, else (one word is
    longer than that) with a sign.
    """
    counts = counter.cumulative(text)
    if counts[-1] <= budget:
        return text
    limit = int(np.searchsorted(counts, budget, side="right")) - 1
    while limit > 0:
        end = _end(text, limit)
        if counter.count(text[:end]) <= budget:
            return text[:end]
        limit = min(end, limit) - 1
    return ""


def _end(text: str, limit: int) -> int:
    """The best place to end at or before ``limit``, which is less than the whole."""
    ends = [end for _, end in sentences(text, 0, len(text)) if end <= limit]
    if ends and 2 * ends[-1] >= limit:
        return ends[-1]
    return len(text[: cut_before(text, 0, limit)].rstrip())
