"""Selection of hits within a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ability_search.text.chunkers.boundaries import cut_before, sentences
from ability_search.text.token_counter import TokenCounter

Fit = Literal["whole", "content", "start", "nothing"]
"""Part of a hit that is kept: all, all but its context, the beginning of its content, nothing."""


def fitted(sizes: Sequence[tuple[int, int]], budget: int) -> list[Fit]:
    """Return how much of each hit fits into a budget.

    Hits take what is left, best first. A hit that does not fit loses its context; if it still does
    not fit, it is skipped. Of the first hit at least the beginning is kept.

    Args:
        sizes: Tokens of the content and of the context of each hit, best first.
        budget: Total number of tokens.
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
    """Return the beginning of a text, at most ``budget`` tokens long.

    It ends with a sentence if that keeps half of what fits, else with a word, else (if one word is
    longer than that) with a character.
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
    """Return the best place to end at or before ``limit``, which is less than the whole."""
    ends = [end for _, end in sentences(text, 0, len(text)) if end <= limit]
    if ends and 2 * ends[-1] >= limit:
        return ends[-1]
    return len(text[: cut_before(text, 0, limit)].rstrip())
