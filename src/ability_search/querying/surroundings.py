"""The option ``expand``: context expansion, and merging of adjacent hits."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ability_search.errors import DatabaseUnavailable
from ability_search.ports import Store
from ability_search.querying import diversity
from ability_search.querying.adjusting import Context
from ability_search.querying.answers import Found
from ability_search.querying.candidates import Pool
from ability_search.querying.model import Candidate, HitContext, Query, QueryAnswer
from ability_search.querying.options import Expansion
from ability_search.querying.steps import Reach, Reordering
from ability_search.ranking.merging import merged
from ability_search.store import arcadedb
from ability_search.text.chunkers.strategies import joined

_SECTION = 10
"""Maximum number of chunks of a section on each side of a hit."""
_SPAN = 50
"""Maximum extent of merged hits, in chunks."""
_MOST = 2000
"""Maximum number of chunks read for all hits."""


def wanted(query: Query) -> bool:
    """Return whether the query requests context expansion."""
    return query.options.expansion is not None


def columns(query: Query) -> Sequence[str]:
    """Return the column that identifies the section of a chunk, if needed."""
    expansion = query.options.expansion
    return ("section",) if expansion is not None and expansion.mode == "section" else ()


def kept(found: Sequence[Candidate], query: Query) -> int:
    """Return the number of hits left after adjacent ones are merged."""
    expansion = query.options.expansion
    return len(found) if expansion is None else len(set(_heads(found, expansion, query)))


async def reorder(
    found: list[Candidate], _pool: Pool, context: Context, _reach: Reach, _answer: QueryAnswer
) -> list[Candidate]:
    """Drop hits that the context of a better hit contains; that hit lists them.

    Hits beyond the page are neither merged nor kept.
    """
    expansion = context.query.options.expansion
    if expansion is None:
        return found
    kept = []
    for place, head in enumerate(_heads(found, expansion, context.query)):
        if head == place:
            kept.append(found[place])
        else:
            found[head].merged.append(found[place])
    for item in kept:
        item.trace[EXPAND.name] = {"merged": {each.chunk_id: each.score for each in item.merged}}
    return kept


async def read_contexts(
    store: Store, found: Sequence[Found], query: Query, answer: QueryAnswer
) -> None:
    """Read the text around each hit, with one read per collection.

    A chunk that was replaced since it was found gets no context.
    """
    expansion = query.options.expansion
    if expansion is None:
        return
    wanted_ids: dict[str, dict[str, None]] = {}
    chosen: list[Found] = []
    left = _MOST
    for each in found:
        ids = _around(each.candidate, expansion)
        left -= len(ids)
        if left < 0:
            answer.warnings.append(
                f"expand: the last {len(found) - len(chosen)} hits have no context,"
                f" because the limit of {_MOST} chunks was reached"
            )
            break
        chosen.append(each)
        wanted_ids.setdefault(each.collection.type, {}).update(dict.fromkeys(ids))
    try:
        answers = await asyncio.gather(
            *(
                store.read(*arcadedb.context_rows(type_, list(ids), query.predicate))
                for type_, ids in wanted_ids.items()
            )
        )
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"expand: the hits have no context: {exc}")
        return
    rows = {row["chunkId"]: row for rows in answers for row in rows}
    for each in chosen:
        each.candidate.context = _context(each.candidate, rows, expansion)


def _heads(found: Sequence[Candidate], expansion: Expansion, query: Query) -> list[int]:
    """Return the place of the hit that each hit is merged into, for those that fill the page.

    With diversity, for all hits that the picks of the page choose among: the choice must not
    depend on the page.
    """
    places = [_place(item, expansion) for item in found]
    shown = query.offset + query.limit
    most = diversity.reach(shown) if diversity.wanted(query) else shown
    return merged(places, most=most, reach=_reach_of(expansion), span=_SPAN)


def _place(item: Candidate, expansion: Expansion) -> tuple[Hashable, int]:
    head, _, number = item.chunk_id.rpartition(":")
    if expansion.mode == "neighbors":
        return head, int(number)
    return (head, item.columns.get("section", item.chunk_id)), int(number)


def _reach_of(expansion: Expansion) -> int:
    return expansion.window if expansion.mode == "neighbors" else _SECTION


def _around(item: Candidate, expansion: Expansion) -> list[str]:
    """Return the chunkIds that the context of a hit may contain, in order."""
    head, _, _ = item.chunk_id.rpartition(":")
    reach = _reach_of(expansion)
    own = [int(each.chunk_id.rpartition(":")[2]) for each in (item, *item.merged)]
    return [f"{head}:{n}" for n in range(max(0, min(own) - reach), max(own) + reach + 1)]


def _context(
    item: Candidate, rows: Mapping[str, Mapping[str, Any]], expansion: Expansion
) -> HitContext | None:
    """Return the text around a hit; ``None`` if it has no neighbours or no longer exists."""
    own = rows.get(item.chunk_id)
    if own is None or own["rid"] != item.rid:
        return None
    run: list[Mapping[str, Any]] = []
    for chunk_id in _around(item, expansion):
        row = rows.get(chunk_id)
        if row is not None and (expansion.mode == "neighbors" or _same_section(row, own)):
            run.append(row)
    if len(run) < 2:
        return None
    return HitContext(
        content=joined(run),
        start_line=run[0].get("startLine"),
        end_line=max((row["endLine"] for row in run if row.get("endLine")), default=None),
        chunks=tuple(row["chunkId"] for row in run),
    )


def _same_section(row: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return bool(row.get("section") == own.get("section"))


EXPAND = Reordering("expand", wanted, reorder)
