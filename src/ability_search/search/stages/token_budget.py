"""The option ``maxResultTokens``: hits within a token budget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from ability_search.search.candidates import Answer, Candidate
from ability_search.search.response import Budget, Cut
from ability_search.search.stage import Ports, option_stage
from ability_search.text.chunkers.boundaries import cut_before, sentences
from ability_search.text.token_counter import TokenCounter

Fit = Literal["whole", "content", "start", "nothing"]
"""Part of a hit that is kept: all, all but its context, the beginning of its content, nothing."""

_CUT: Mapping[Fit, Literal["hit", "context", "end"]] = {
    "nothing": "hit",
    "content": "context",
    "start": "end",
}


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


async def fit_budget(most: int, answer: Answer, ports: Ports) -> None:
    """Cut the hits to the token budget, and record its use."""
    answer.ranked, answer.budget = await asyncio.to_thread(
        fit_hits, answer.ranked, most, ports.counter
    )


def fit_hits(
    hits: Sequence[Candidate], most: int, counter: TokenCounter
) -> tuple[list[Candidate], Budget]:
    """Return the hits that fit, and the use of the budget.

    Args:
        hits: Best first, with their rows.
        most: Token budget for the contents of all hits and their contexts.
        counter: Counts tokens, the same one as for the chunks.
    """
    sizes = [_size(item, counter) for item in hits]
    kept: list[Candidate] = []
    cut: list[Cut] = []
    used = 0
    for item, size, fit in zip(hits, sizes, fitted(sizes, most), strict=True):
        content, context = size
        item.trace[NAME] = {"tokens": content, "contextTokens": context}
        if fit == "start":
            item.content = beginning(_content(item), most, counter)
            content = counter.count(item.content)
        if fit in ("start", "content"):
            item.context = None
        left = {"whole": content + context, "nothing": 0}.get(fit, content)
        used += left
        if fit != "nothing":
            kept.append(item)
        if fit != "whole":
            cut.append(Cut(chunk_id=item.chunk_id, tokens=sum(size) - left, what=_CUT[fit]))
    truncated = any(each.what == "end" for each in cut)
    return kept, Budget(max_tokens=most, tokens=used, cut=cut, truncated=truncated)


def _size(item: Candidate, counter: TokenCounter) -> tuple[int, int]:
    """Return the tokens of content and context."""
    content = item.row.tokens if item.row else 0
    if content is None:
        content = counter.count(_content(item))
    return int(content), counter.count(item.context.content) if item.context else 0


def _content(item: Candidate) -> str:
    return item.row.content if item.row else ""


NAME = "maxResultTokens"
TOKEN_BUDGET = option_stage(NAME, lambda query: query.asked.max_result_tokens, fit_budget)
