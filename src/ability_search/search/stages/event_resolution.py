"""Event resolution: dates for events that a query names (``what was set up before the outage``).

The candidates of the original query date the event: the best one that both answers the query and
is about the event. Then the query is searched again with the days before or after the event as its
period, as if it named them, and candidates about the event itself are demoted. If no candidate
dates the event, the query is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ability_search.errors import DatabaseUnavailable
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.planner import planned
from ability_search.search.query import COSINE, EVENT, WITHOUT_EVENT, Query
from ability_search.search.retrievers import retrieve
from ability_search.search.stage import Ports, option_stage
from ability_search.search.stages.exclusion_penalty import aboutness, closeness
from ability_search.search.stages.time_closeness import is_date, periods_of
from ability_search.understanding.named_events import Event
from ability_search.understanding.periods import Period

LEAST_COSINE: Final = 0.3
LEAST_WORDS: Final = 0.5
"""A candidate dates an event only if its cosine to the event's phrase, or its share of the
phrase's words, is above these bounds."""


def unresolved_event(query: Query) -> Event | None:
    """Return the event of unknown date that the query names."""
    return query.intent.event if query.intent.period is None else None


async def search_around_event(_event: Event, candidates: Candidates, ports: Ports) -> None:
    """Search again with the event resolved to a date; unchanged if no hit dates it.

    Raises:
        NotFound: if the collection is gone.
    """
    query = resolved(await candidates.first_hits(), candidates)
    if query is None:
        return
    vectors = candidates.vectors
    if vectors is not None:
        vectors = {**vectors, COSINE: vectors[WITHOUT_EVENT]}
    try:
        await retrieve(candidates, planned(candidates, query, vectors), ports)
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"the event was not resolved: {exc}")
        return
    candidates.query = query


def resolved(hits: Sequence[Candidate], candidates: Candidates) -> Query | None:
    """Return the query with the event resolved to a period; ``None`` if no candidate dates it.

    Only candidates of the first page count, so that further pages use the same days.

    Args:
        hits: The scored candidates of the original query.
        candidates: All candidates, with query and plan.
    """
    query, first = candidates.query, candidates.plan.depths[0]
    shown = [item for item in hits if min(item.ranks.values()) <= first]
    period = _event_period(shown, candidates) if shown else None
    return None if period is None else replace(query, intent=query.intent.resolved(period))


def _event_period(hits: Sequence[Candidate], candidates: Candidates) -> Period | None:
    cosines, words = closeness([EVENT], hits, candidates)
    about = np.array([item.score for item in hits]) + aboutness(cosines, words)
    dated = [
        (-about[place], item.chunk_id, date)
        for place, item in enumerate(hits)
        if (cosines[place] > LEAST_COSINE or words[place] > LEAST_WORDS)
        and (date := next(filter(is_date, periods_of(item)), None)) is not None
    ]
    return min(dated, key=lambda each: each[:2])[2] if dated else None


EVENT_RESOLUTION = option_stage(
    "event",
    unresolved_event,
    search_around_event,
    when=lambda candidates: not candidates.failed,
)
