"""Event resolution: dates for events that a query names (``what was set up before the outage``).

The candidates of the original query date the event: the best one that both answers the query and
is about the event. Then the query is searched again with the days before or after the event as its
period, as if it named them, and candidates about the event itself are demoted. If no candidate
dates the event, the query is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ability_search.querying import exclusion
from ability_search.querying.adjusting import Context
from ability_search.querying.model import Candidate, Query
from ability_search.querying.temporal import is_date, periods_of
from ability_search.ranking.exclusion import aboutness
from ability_search.text.bm25 import QueryTerms
from ability_search.understanding.periods import Period

STAGE: Final = "event"
BESIDE: Final = "beside"
"""Name of the vector of the query without its event."""
LEAST_COSINE: Final = 0.3
LEAST_WORDS: Final = 0.5
"""A candidate dates an event only if its cosine to the event's phrase, or its share of the
phrase's words, is above these bounds."""


def wanted(query: Query) -> bool:
    """Return whether the query names an event of unknown date."""
    return query.event is not None and query.intent is not None and query.intent.period is None


def phrases(query: Query) -> dict[str, str]:
    """Return the further texts to embed, by name; empty if the query names no event."""
    if query.intent is None or query.intent.event is None:
        return {}
    beside = query.hypothetical_answer or query.intent.beside_topic
    return {exclusion.EVENT: query.intent.event.phrase, BESIDE: beside}


def products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """Return the terms of the event, by the column for a candidate's raw score by them."""
    if query.event is None:
        return {}
    return {exclusion.words_column(exclusion.EVENT): weigh(query.event.phrase)}


def dated(found: Sequence[Candidate], context: Context) -> Query | None:
    """Return the query with the event resolved to a period; ``None`` if no candidate dates it.

    Only candidates of the first page count, so that further pages use the same days.

    Args:
        found: The scored candidates of the original query.
        context: Context of the query.
    """
    query, first = context.query, context.plan.depths[0]
    shown = [item for item in found if min(item.ranks.values()) <= first]
    happened = _happened(shown, context) if shown else None
    if query.intent is None or happened is None:
        return None
    return replace(query, intent=query.intent.beside(happened))


def _happened(found: Sequence[Candidate], context: Context) -> Period | None:
    cosines, words = exclusion.closeness_to([exclusion.EVENT], found, context)
    about = np.array([item.score for item in found]) + aboutness(cosines, words)
    told = [
        (-about[place], item.chunk_id, date)
        for place, item in enumerate(found)
        if (cosines[place] > LEAST_COSINE or words[place] > LEAST_WORDS)
        and (date := next(filter(is_date, periods_of(item)), None)) is not None
    ]
    return min(told, key=lambda each: each[:2])[2] if told else None
