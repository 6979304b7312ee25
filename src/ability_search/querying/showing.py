"""Reading of the page of hits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ability_search.ports import Store
from ability_search.querying.answers import Found, hit
from ability_search.querying.model import Hit, Query, QueryAnswer
from ability_search.querying.rows import read_rows
from ability_search.querying.surroundings import EXPAND, read_contexts
from ability_search.querying.timings import Timings


async def read_hits(
    store: Store, found: Sequence[Found], query: Query, answer: QueryAnswer, clock: Timings
) -> list[Hit]:
    """Return the requested page of hits, with their texts and contexts.

    A chunk that was replaced since it was found is left out.
    """
    part = found[query.offset : query.offset + query.limit]

    async def surround() -> None:
        if EXPAND.wanted(query):
            with clock.step(EXPAND.name):
                await read_contexts(store, part, query, answer)

    await asyncio.gather(read_rows(store, part), surround())
    return [hit(each, query) for each in part if each.candidate.row is not None]
