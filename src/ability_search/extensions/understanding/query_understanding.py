"""Query understanding: exclusions and times in the text of a query, and the options about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ability_search.errors import InvalidInput
from ability_search.extensions.understanding import (
    Temporal,
    TimeRange,
    UnderstandingOptions,
    exclusion_penalty,
    time_closeness,
    time_order,
)
from ability_search.extensions.understanding.intent import Intent, understand
from ability_search.extensions.understanding.periods import Period, day_of, iso_day
from ability_search.extensions.understanding.query_expansion import SHARE
from ability_search.extensions.understanding.time_closeness import RequestedTime
from ability_search.extensions.understanding.time_order import RequestedOrder
from ability_search.filters.operands import instants
from ability_search.search.candidates import Answer
from ability_search.search.query import Query
from ability_search.search.response import Understood
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Wants, Words

NAME = "understanding"
_WORDS = "words"
"""Option with the text without exclusions but with times."""


class Asked(NamedTuple):
    """The requests of the options."""

    temporal: Temporal
    period: Period | None
    """Days that hits should be about; overrides the text."""
    exclude: tuple[str, ...]
    understand: bool


def asked_for(asked: UnderstandingOptions) -> Asked:
    """Return what the options of a request ask for.

    Raises:
        InvalidInput: if the time range is invalid.
    """
    return Asked(
        asked.temporal or Temporal(),
        _period(asked.time_range),
        tuple(asked.exclude),
        asked.understand,
    )


async def understand_query(option: Asked, answer: Answer, ports: Ports) -> None:
    """Read exclusions and times out of the query, and out of its other phrasings."""
    query = answer.query

    def understand_all() -> Query:
        others = tuple(understood(other, option) for other in query.others)
        return replace(understood(query, option), others=others)

    answer.query = await ports.turns.run(understand_all, work=query.work)


def understood(query: Query, option: Asked) -> Query:
    """Return the query with what its text and its options say."""
    temporal = option.temporal
    timed = temporal.weight != 0
    intent = understand(
        query.asked.query,
        now=query.as_of or 0,
        exclude=option.exclude,
        period=option.period if timed else None,
        order=temporal.order if timed else None,
        exclusion=option.understand,
        temporal=option.understand and timed,
    )
    options: dict[str, Any] = dict(query.options)
    if intent.words != intent.topic:
        options[_WORDS] = intent.words
    if intent.excluded:
        phrases = {f"excluded{place}": text for place, text in enumerate(intent.excluded)}
        options[exclusion_penalty.NAME] = phrases
    if intent.period is not None:
        options[time_closeness.NAME] = RequestedTime(
            intent.period, option.period is not None, temporal.weight, temporal.sigma_days
        )
    if intent.order is not None:
        options[time_order.NAME] = RequestedOrder(intent.order, temporal.weight)
    return replace(
        query,
        topic=intent.topic,
        options=options,
        understood=_recognized(intent),
        explained={**query.explained, **_explained(intent)},
    )


def _recognized(intent: Intent) -> Understood | None:
    """Return the exclusions, the period and the order that count; ``None`` if there are none."""
    if not (intent.excluded or intent.period or intent.order):
        return None
    days = _days(intent.period)
    return Understood(
        excluded=list(intent.excluded) or None,
        start=days.get("from"),
        end=days.get("to"),
        order=intent.order,
    )


def _explained(intent: Intent) -> dict[str, Any]:
    """Return how the query was understood; empty if it was taken literally."""
    if not (intent.excluded or intent.period or intent.order):
        return {}
    found = {
        "topic": intent.topic,
        "excluded": list(intent.excluded),
        "period": _days(intent.period) or None,
        "order": intent.order,
        "spans": [
            {"kind": span.kind, "start": span.start, "end": span.end} for span in intent.recognized
        ],
    }
    return {"understood": found}


def _wants(_option: Asked, query: Query) -> Wants:
    """Return the words of a time, which add nothing to a model that knows the texts."""
    words = query.options.get(_WORDS)
    return Wants(words=(Words(words, query.topic, SHARE, untrusted=True),) if words else ())


def _period(value: TimeRange | None) -> Period | None:
    if value is None:
        return None
    if value.start is None and value.end is None:
        raise InvalidInput("timeRange", "needs from, to or both")
    first = None if value.start is None else day_of(instants("timeRange.from", value.start)[0])
    last = None if value.end is None else day_of(instants("timeRange.to", value.end)[1] - 1)
    try:
        return Period(first, last)
    except ValueError as exc:
        raise InvalidInput("timeRange", "from must not be later than to") from exc


def _days(period: Period | None) -> dict[str, str | None]:
    if period is None:
        return {}
    first, last = period.first, period.last
    return {
        "from": None if first is None else iso_day(first),
        "to": None if last is None else iso_day(last),
    }


QUERY_UNDERSTANDING = Stage(
    NAME, Phase.UNDERSTAND, 10, understand_query, option=asked_for, wants=_wants, step=""
)
