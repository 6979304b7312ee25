"""The option ``maxResultTokens``: an answer within a token budget."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import numpy as np

from ability_search.search.response import Budget, Cut, CutPart, Hit, QueryResult
from ability_search.text.chunkers.boundaries import cut_before, sentences
from ability_search.text.token_counter import TokenCounter
from ability_search.wire import Result

NAME: Final = "maxResultTokens"
_DETAILS: Final = ("explain", "highlights", "timings")
"""Fields that are left out of the whole answer, in this order, before any hit is cut."""
_MARGIN: Final = 12
"""Tokens reserved for numbers that are known only when the answer is complete."""
_COMMA: Final = 1


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


def fit_answer(result: QueryResult, most: int, counter: TokenCounter) -> QueryResult:
    """Return an answer with as much as fits into a budget, and the use of the budget.

    What does not fit is left out in this order: ``explain``, ``highlights`` and ``timings`` (but
    the total) of the whole answer; then of each hit, best first, its context, then its metadata,
    then all of it, so that shorter hits take its place. Of the first hit at least the fields
    without its text are kept, even if the budget is smaller.

    Args:
        result: The answer with all its hits.
        most: Token budget for the answer as JSON.
        counter: Counts tokens, the same one as for the chunks.
    """

    def size(part: Result) -> int:
        return counter.count(part.model_dump_json(by_alias=True, exclude_none=True))

    for hit in result.results:
        if hit.explain is not None:
            hit.explain[NAME] = {"tokens": size(hit)}
    budget = Budget(max_tokens=most, tokens=most, cut=[], truncated=False)
    result = result.model_copy(update={"budget": budget})
    total = size(result)
    for name in _DETAILS:
        if total + _MARGIN >= most:
            result, found = _without(result, name)
            budget.omitted = [*(budget.omitted or ()), name] if found else budget.omitted
            total = size(result)
    left = most - _MARGIN - size(result.model_copy(update={"results": []}))
    kept: list[Hit] = []
    for hit in result.results:
        sized = ((each, size(each), cut) for each, cut in _reductions(hit))
        whole = next(sized)
        fit, after, what = next(
            (each for each in chain((whole,), sized) if each[1] <= left), (None, 0, None)
        )
        if fit is None and not kept:
            fit, what = _beginning_of(hit, left, counter), "end"
            after = size(fit)
        if fit:
            left -= after + _COMMA
            kept.append(fit)
        if fit is None or what:
            cut = Cut(chunk_id=hit.chunk_id, tokens=whole[1] - after, what=what or "hit")
            named = size(cut) + _COMMA <= left
            left -= size(cut) + _COMMA if named else 0
            budget.cut += [cut] if named else []
            budget.unnamed = (budget.unnamed or 0) + (not named) or None
    budget.truncated = any(hit.truncated for hit in kept)
    result = result.model_copy(update={"results": kept, "count": len(kept)})
    budget.tokens = size(result)
    return result


def _without(result: QueryResult, name: str) -> tuple[QueryResult, bool]:
    """Return an answer without a detail, of itself and of its hits; whether there was one."""
    if name == "timings":
        return result.model_copy(update={name: {"total": result.timings["total"]}}), True
    found = any(getattr(part, name, None) for part in (result, *result.results))
    hits = [hit.model_copy(update={name: None}) for hit in result.results]
    own = {name: None} if name in QueryResult.model_fields else {}
    return result.model_copy(update={**own, "results": hits}), found


def _reductions(hit: Hit) -> Iterator[tuple[Hit, CutPart | None]]:
    """Yield a hit as it is and with less and less, each with the last part left out."""
    yield hit, None
    if hit.context is not None:
        hit = hit.model_copy(update={"context": None})
        yield hit, "context"
    if hit.metadata:
        yield hit.model_copy(update={"metadata": {}}), "metadata"


def _beginning_of(hit: Hit, most: int, counter: TokenCounter) -> Hit:
    """Return a hit with the beginning of its content only; without content if nothing fits."""
    bare = hit.model_copy(update={"context": None, "merged": None, "metadata": {}})
    room = most
    while True:
        content = beginning(hit.content, room, counter) if room > 0 else ""
        marks = hit.highlights and [mark for mark in hit.highlights if mark.end <= len(content)]
        short = bare.model_copy(
            update={"content": content, "truncated": True, "highlights": marks or None}
        )
        over = counter.count(short.model_dump_json(by_alias=True, exclude_none=True)) - most
        if over <= 0 or not content:
            return short
        room = min(room, counter.count(content)) - over
