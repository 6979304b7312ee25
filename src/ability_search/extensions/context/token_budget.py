"""The option ``maxResultTokens``: an answer within a token budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ability_search.search.candidates import Answer
from ability_search.search.response import Budget, Cut, CutPart, Hit, HitContext, QueryResult
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.text.chunkers.boundaries import cut_before, sentences
from ability_search.text.token_counter import TokenCounter
from ability_search.wire import Result

NAME: Final = "maxResultTokens"
_DETAILS: Final = ("explain", "highlights", "timings")
"""Fields that are left out of the whole answer, in this order, before any hit is cut."""
_REDUCTIONS: Final[Mapping[CutPart, Any]] = {"context": None, "metadata": {}}
"""Parts of a hit that are left out, in this order, and what takes their place."""
_MARGIN: Final = 12
"""Tokens reserved for numbers that are known only when the answer is complete."""
_COMMA: Final = 1
_COUNTED: Final = 100
"""Work of counting the tokens of a hit, in candidates."""


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

    def room() -> int:
        return most - _MARGIN - size(result.model_copy(update={"results": []}))

    for hit in result.results:
        _explain(hit, size)
    budget = Budget(max_tokens=most, tokens=most, cut=[], truncated=False)
    result = result.model_copy(update={"budget": budget})
    # Counting takes most of the time, so each text is counted once if possible.
    sizes = list(map(size, result.results))
    for name in _DETAILS:
        if sum(sizes) + _COMMA * len(sizes) >= room():
            before = result.results
            result, found = _without(result, name)
            budget.omitted = [*(budget.omitted or ()), name] if found else budget.omitted
            pairs = zip(result.results, before, sizes, strict=True)
            sizes = [size(hit) if hit is not old else tokens for hit, old, tokens in pairs]
    left = room()
    kept: list[Hit] = []
    for hit, whole in zip(result.results, sizes, strict=True):
        fit, after, what = _fitted(hit, whole, left, size)
        if fit is None and not kept:
            fit, what = _beginning_of(hit, left, counter), "end"
            after = size(fit)
        if fit:
            left -= after + _COMMA
            kept.append(fit)
        if fit is None or what:
            cut = Cut(chunk_id=hit.chunk_id, tokens=whole - after, what=what or "hit")
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
    hits = [
        hit.model_copy(update={name: None}) if getattr(hit, name, None) else hit
        for hit in result.results
    ]
    own = {name: None} if name in QueryResult.model_fields else {}
    return result.model_copy(update={**own, "results": hits}), found


class _Removable(Result):
    """The parts of a hit that may be left out."""

    context: HitContext | None
    metadata: dict[str, Any]


def _fitted(
    hit: Hit, whole: int, left: int, size: Callable[[Result], int]
) -> tuple[Hit | None, int, CutPart | None]:
    """Return a hit, if necessary without parts, its size, and the last part left out.

    ``whole`` is its size. The hit is ``None`` if it does not fit into ``left`` tokens without any
    of the parts.
    """
    if whole <= left:
        return hit, whole, None
    if whole - size(_Removable(context=hit.context, metadata=hit.metadata)) > left:
        return None, 0, None
    for what, nothing in _REDUCTIONS.items():
        if getattr(hit, what):
            hit = hit.model_copy(update={what: nothing})
            if (after := size(hit)) <= left:
                return hit, after, what
    return None, 0, None


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


def _explain(hit: Hit, size: Callable[[Result], int]) -> None:
    if hit.explain is not None:
        hit.explain[NAME] = {"tokens": size(hit)}


async def _fit(most: int, answer: Answer, ports: Ports) -> None:
    result = answer.result
    assert result is not None
    answer.result = await ports.turns.run(
        lambda: fit_answer(result, most, ports.counter), work=_COUNTED * result.count
    )


TOKEN_BUDGET = Stage(NAME, Phase.ANSWER, 10, _fit, option=lambda asked: asked.max_result_tokens)
