"""Reading of hit rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ability_search.ports import Store
from ability_search.querying.answers import Found
from ability_search.store import arcadedb


async def read_rows(store: Store, found: Iterable[Found]) -> None:
    """Read the rows of candidates that have none yet, of one collection or several.

    A chunk that was replaced since it was found gets no row.
    """
    missing: dict[str, dict[str, Found]] = {}
    for each in found:
        if each.candidate.row is None:
            missing.setdefault(each.collection.type, {})[each.candidate.rid] = each
    answers = await asyncio.gather(
        *(store.read(*arcadedb.hit_rows(type_, list(own))) for type_, own in missing.items())
    )
    for own, rows in zip(missing.values(), answers, strict=True):
        for row in rows:
            own[row["rid"]].candidate.row = row
