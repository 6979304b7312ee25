"""The option ``maxResultTokens``: hits within a token budget. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ability_search.querying.model import Budget, Cut, Hit
from ability_search.ranking.packing import Fit, beginning, fitted
from ability_search.text.token_counter import TokenCounter

_CUT: Mapping[Fit, Literal["hit", "context", "end"]] = {
    "nothing": "hit",
    "content": "context",
    "start": "end",
}


def packed(hits: Sequence[Hit], most: int, counter: TokenCounter) -> tuple[list[Hit], Budget]:
    """Return the hits that fit, and the use of the budget.

    Args:
        hits: Best first.
        most: Token budget for the contents of all hits and their contexts.
        counter: Counts tokens, the same one as for the chunks.
    """
    sizes = [_size(hit, counter) for hit in hits]
    kept: list[Hit] = []
    cut: list[Cut] = []
    used = 0
    for hit, size, fit in zip(hits, sizes, fitted(sizes, most), strict=True):
        content, context = size
        if fit == "start":
            hit = _shortened(hit, most, counter)
            content = counter.count(hit.row["content"])
        lost = sum(size) - _left(fit, content, context)
        used += _left(fit, content, context)
        if fit != "nothing":
            kept.append(_told(hit if fit != "content" else replace(hit, context=None), size))
        if fit != "whole":
            cut.append(Cut(hit.chunk_id, lost, _CUT[fit]))
    return kept, Budget(most, used, tuple(cut))


def _told(hit: Hit, size: tuple[int, int]) -> Hit:
    """Return the hit with its size in the trace, if it has one."""
    if hit.trace is None:
        return hit
    content, context = size
    told = {"maxResultTokens": {"tokens": content, "contextTokens": context}}
    return replace(hit, trace={**hit.trace, **told})


def _size(hit: Hit, counter: TokenCounter) -> tuple[int, int]:
    """Return the tokens of content and context."""
    content = hit.row.get("tokens")
    if content is None:
        content = counter.count(hit.row["content"])
    return int(content), counter.count(hit.context.content) if hit.context else 0


def _left(fit: Fit, content: int, context: int) -> int:
    return {"whole": content + context, "nothing": 0}.get(fit, content)


def _shortened(hit: Hit, most: int, counter: TokenCounter) -> Hit:
    """Return the beginning of a hit, with the highlights inside it."""
    text = beginning(hit.row["content"], most, counter)
    marks = None
    if hit.highlights is not None:
        marks = tuple(mark for mark in hit.highlights if mark.end <= len(text))
    row = {**hit.row, "content": text}
    return replace(hit, row=row, highlights=marks, context=None, truncated=True)
