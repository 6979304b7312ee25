"""Query understanding for the pipeline: intent, texts to embed, explanation. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ability_search.querying import dating, exclusion, ordering, rewording, temporal
from ability_search.querying.adjusting import TimeSignal
from ability_search.querying.model import Query, Understood
from ability_search.understanding.intent import understand
from ability_search.understanding.periods import Period, iso_day


def understood(query: Query, *, now: int) -> Query:
    """Return the query with its intent; ``now`` in epoch milliseconds."""
    options = query.options
    timed = options.temporal.weight != 0
    intent = understand(
        query.text,
        now=now,
        exclude=options.exclude,
        period=options.period if timed else None,
        order=options.temporal.order if timed else None,
        exclusion=options.understand,
        temporal=options.understand and timed,
    )
    return replace(query, intent=intent)


def embedded_texts(query: Query) -> dict[str, str]:
    """Return the texts to embed for a query, by the column for the cosine; the query first."""
    texts = {"cosine": query.embedded_text} | rewording.embedded_wording(query)
    texts |= exclusion.phrases(query)
    return texts | dating.phrases(query)


def told(query: Query, time: TimeSignal | None) -> Understood | None:
    """Return the exclusions and the period that counted; ``None`` if there were none."""
    period = query.intent.period if query.intent else None
    if time is not None and time.period is not None:
        period = time.period
    return Understood(query.excluded, period) if query.excluded or period else None


def explained(query: Query, time: TimeSignal | None) -> dict[str, Any]:
    """Return how a query was understood, for ``explain``; empty if it was taken literally."""
    intent = query.intent
    if intent is None or not (intent.excluded or temporal.wanted(query) or ordering.wanted(query)):
        return {}
    found = {
        "topic": intent.topic,
        "excluded": list(intent.excluded),
        "period": _days(time.period) if time is not None and time.period else None,
        "event": intent.event.phrase if intent.event else None,
        "asksForDate": intent.asks_for_date,
        "order": intent.order,
        "timeWeight": time.weight if time is not None else 0.0,
        "spans": [
            {"kind": each.kind, "start": each.start, "end": each.end} for each in intent.recognized
        ],
    }
    return {"understood": found}


def _days(period: Period) -> dict[str, str | None]:
    first, last = period.first, period.last
    return {
        "from": None if first is None else iso_day(first),
        "to": None if last is None else iso_day(last),
    }
