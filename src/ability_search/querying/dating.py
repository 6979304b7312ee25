"""An event that a query names: ``what was set up before the outage``.

When it was the candidates of the query as it stands tell: the one that answers it and is about the
event. Then the query is searched for a second time, with the days beside the event as those asked
for, as if it named them, and what is about the event is pushed down. Where no candidate tells,
the query stays as it stands.
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
from ability_search.ranking.bm25 import QueryTerms
from ability_search.ranking.exclusion import aboutness
from ability_search.understanding import Period

STAGE: Final = "event"
BESIDE: Final = "beside"
"""The vector of what is asked for beside the event."""
LEAST_COSINE: Final = 0.3
LEAST_WORDS: Final = 0.5
"""What is neither as close to how a query calls an event, nor has that share of its words, does
not tell when it was."""


def wanted(query: Query) -> bool:
    """Whether an event is named whose day is not known."""
    return query.event is not None and query.intent is not None and query.intent.period is None


def phrases(query: Query) -> dict[str, str]:
    """What is embedded besides the query, by name; nothing where no event is named."""
    if query.intent is None or query.intent.event is None:
        return {}
    beside = query.hypothetical_answer or query.intent.beside_topic
    return {exclusion.EVENT: query.intent.event.phrase, BESIDE: beside}


def products(query: Query, weigh: Callable[[str], QueryTerms]) -> dict[str, QueryTerms]:
    """The terms of the event, by the column that holds a candidate's raw score by them."""
    if query.event is None:
        return {}
    return {exclusion.words_column(exclusion.EVENT): weigh(query.event.phrase)}


def dated(found: Sequence[Candidate], context: Context) -> Query | None:
    """The query with the days beside its event; ``None`` where no candidate tells.

    Only what a first page looks at tells, so that further pages mean the same days.

    Args:
        found: The candidates of the query as it stands, scored.
        context: What the query is.
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
