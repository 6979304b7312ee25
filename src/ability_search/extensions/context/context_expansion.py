"""The option ``expand``: context expansion, and merging of adjacent hits."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.extensions.context import ContextOptions, Expand
from ability_search.search.candidates import Answer, Candidate, Candidates
from ability_search.search.query import Query
from ability_search.search.response import HitContext
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Wants
from ability_search.store.pages import read_all
from ability_search.store.values import Chunks, Columns, Read
from ability_search.text.chunkers.strategies import joined

_SECTION = 10
"""Maximum number of chunks of a section on each side of a hit."""
_SPAN = 50
"""Maximum extent of merged hits, in chunks."""
_MOST = 2000
"""Maximum number of chunks read for all hits."""
_COLUMNS = Columns(
    ("handle", "chunk_id", "content", "lead", "overlap", "section", "start_line", "end_line")
)


def merged(hits: Sequence[tuple[Hashable, int]], *, most: int, reach: int, span: int) -> list[int]:
    """Return which hit each hit is merged into, until ``most`` hits remain.

    A hit joins the best hit before it that it is near to, or that another hit near to it has
    joined. The result for a hit does not depend on those after it.

    Args:
        hits: Best first; the text of each hit and its chunk number in that text.
        most: Number of hits to keep; hits after the last of them are not examined.
        reach: Maximum distance between the numbers of near hits.
        span: Maximum count of numbers, from the least to the greatest, in one merged hit.

    Returns:
        For each examined hit the place of the hit it is merged into; its own if it is kept.
    """
    owner: dict[tuple[Hashable, int], int] = {}
    extents: dict[int, tuple[int, int]] = {}
    into: list[int] = []
    for place, (text, number) in enumerate(hits):
        if len(extents) == most:
            break
        near = {
            owner[text, other]
            for other in range(number - reach, number + reach + 1)
            if (text, other) in owner
        }
        head = place
        extent = number, number
        for standing in sorted(near):
            low, high = extents[standing]
            wider = min(low, number), max(high, number)
            if wider[1] - wider[0] < span:
                head, extent = standing, wider
                break
        extents[head] = extent
        owner[text, number] = head
        into.append(head)
    return into


def left_merged(
    option: Expand, ranked: Sequence[Candidate], candidates: Candidates
) -> list[Candidate]:
    """Return the hits left after adjacent ones are merged, or as many as are left at least.

    In the order of their text as few are left as in any other, one of a reranker included.
    """
    if candidates.reranked:
        ranked = sorted(ranked, key=lambda item: _place(item, option))
    return [ranked[place] for place in sorted(set(_heads(ranked, option, candidates)))]


async def merge_adjacent(option: Expand, candidates: Candidates, _ports: Ports) -> None:
    """Drop hits that the context of a better hit contains; that hit lists them.

    Hits beyond the page are neither merged nor kept.
    """
    ranked, kept = candidates.ranked, []
    for place, head in enumerate(_heads(ranked, option, candidates)):
        if head == place:
            kept.append(ranked[place])
        else:
            ranked[head].merged.append(ranked[place])
    for item in kept:
        item.trace[NAME] = {"merged": {each.chunk_id: each.score for each in item.merged}}
    candidates.ranked = kept


async def read_contexts(option: Expand, answer: Answer, ports: Ports) -> None:
    """Read the text around each hit of a page, with one read per collection.

    A chunk that was replaced since it was found gets no context.
    """
    page = answer.page
    wanted: dict[Collection, dict[str, None]] = {}
    chosen: list[Candidate] = []
    left = _MOST
    for item in page:
        ids = _around(item, option)
        left -= len(ids)
        if left < 0:
            answer.warnings.append(
                f"expand: the last {len(page) - len(chosen)} hits have no context,"
                f" because the limit of {_MOST} chunks was reached"
            )
            break
        chosen.append(item)
        wanted.setdefault(item.collection, {}).update(dict.fromkeys(ids))
    try:
        found = await asyncio.gather(
            *(
                read_all(
                    ports.store,
                    Read(Chunks(ids=[*ids], filter=answer.query.filter), collection, _COLUMNS),
                )
                for collection, ids in wanted.items()
            )
        )
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"expand: the hits have no context: {exc}")
        return
    passages = {row["chunk_id"]: row for rows in found for row in rows}
    for item in chosen:
        item.context = _context(item, passages, option)


def _heads(ranked: Sequence[Candidate], option: Expand, candidates: Candidates) -> list[int]:
    """Return the place of the hit that each hit is merged into, for those that fill the page.

    If a later stage chooses among more than these, for all of them: the choice must not depend on
    the page.
    """
    places = [_place(item, option) for item in ranked]
    return merged(places, most=candidates.selected_from, reach=_reach(option), span=_SPAN)


def _place(item: Candidate, option: Expand) -> tuple[Hashable, int]:
    head, _, number = item.chunk_id.rpartition(":")
    if option.mode == "neighbors":
        return head, int(number)
    return (head, item.columns.get("section", item.chunk_id)), int(number)


def _reach(option: Expand) -> int:
    return option.window if option.mode == "neighbors" else _SECTION


def _around(item: Candidate, option: Expand) -> list[str]:
    """Return the chunkIds that the context of a hit may contain, in order."""
    head, _, _ = item.chunk_id.rpartition(":")
    reach = _reach(option)
    own = [int(each.chunk_id.rpartition(":")[2]) for each in (item, *item.merged)]
    return [f"{head}:{n}" for n in range(max(0, min(own) - reach), max(own) + reach + 1)]


def _context(
    item: Candidate, passages: Mapping[str, Mapping[str, Any]], option: Expand
) -> HitContext | None:
    """Return the text around a hit; ``None`` if it has no neighbours or no longer exists."""
    own = passages.get(item.chunk_id)
    if own is None or own["handle"] != item.handle:
        return None
    run: list[Mapping[str, Any]] = []
    for chunk_id in _around(item, option):
        passage = passages.get(chunk_id)
        if passage is None:
            continue
        if option.mode == "neighbors" or passage["section"] == own["section"]:
            run.append(passage)
    if len(run) < 2:
        return None
    return HitContext(
        content=joined(run),
        start_line=run[0]["start_line"],
        end_line=max((end for each in run if (end := each["end_line"])), default=None),
        chunks=[passage["chunk_id"] for passage in run],
    )


def _expand(asked: ContextOptions) -> Expand | None:
    option = asked.expand
    return Expand(mode=option) if isinstance(option, str) else option


def _wants(option: Expand, _query: Query) -> Wants:
    return Wants(fields=("section",) if option.mode == "section" else ())


NAME = "expand"
CONTEXT_EXPANSION = Stage(
    NAME,
    Phase.SELECT,
    20,
    merge_adjacent,
    option=_expand,
    wants=_wants,
    left=left_merged,
    computes=True,
)
CONTEXTS = Stage(NAME, Phase.PAGE, 0, read_contexts, option=_expand)
