"""Query understanding: exclusions and times in the text of a query, and the options about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ability_search.errors import InvalidInput
from ability_search.extensions.understanding import (
    Temporal,
    UnderstandingOptions,
    exclusion_penalty,
    time_scores,
)
from ability_search.extensions.understanding.intent import understand
from ability_search.extensions.understanding.periods import Period, day_of, iso_day
from ability_search.extensions.understanding.query_expansion import SHARE
from ability_search.extensions.understanding.time_scores import RequestedOrder, RequestedTime
from ability_search.filters.operands import instants
from ability_search.search.candidates import Answer
from ability_search.search.query import Query
from ability_search.search.response import Understood
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Wants, Words

NAME = "understanding"
_WORDS = "words"
"""Option with the text without exclusions but with times."""


def asked_for(asked: UnderstandingOptions) -> UnderstandingOptions:
    """Return the options of a request.

    Raises:
        InvalidInput: if the time range is invalid.
    """
    requested_period(asked)
    return asked


async def understand_query(option: UnderstandingOptions, answer: Answer, ports: Ports) -> None:
    """Read exclusions and times out of the query, and out of its other phrasings."""
    query = answer.query

    def understand_all() -> Query:
        others = tuple(understood(other, option) for other in query.others)
        return replace(understood(query, option), others=others)

    answer.query = await ports.turns.run(understand_all, work=query.work)


def understood(query: Query, option: UnderstandingOptions) -> Query:
    """Return the query with what its text and its options say."""
    temporal = option.temporal or Temporal()
    timed = temporal.weight != 0
    asked_period = requested_period(option)
    intent = understand(
        query.asked.query,
        now=query.as_of or 0,
        exclude=option.exclude,
        period=asked_period if timed else None,
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
        options[time_scores.CLOSENESS] = RequestedTime(
            intent.period, asked_period is not None, temporal.weight, temporal.sigma_days
        )
    if intent.order is not None:
        options[time_scores.ORDER] = RequestedOrder(intent.order, temporal.weight)
    if not (intent.excluded or intent.period or intent.order):
        return replace(query, topic=intent.topic, options=options, understood=None)
    days = _days(intent.period)
    explained = {
        "topic": intent.topic,
        "excluded": list(intent.excluded),
        "period": days or None,
        "order": intent.order,
        "spans": [span._asdict() for span in intent.recognized],
    }
    return replace(
        query,
        topic=intent.topic,
        options=options,
        understood=Understood(
            excluded=list(intent.excluded) or None,
            start=days.get("from"),
            end=days.get("to"),
            order=intent.order,
        ),
        explained={**query.explained, "understood": explained},
    )


def _wants(_option: UnderstandingOptions, query: Query) -> Wants:
    """Return the words of a time, which add nothing to a model that knows the texts."""
    words = query.options.get(_WORDS)
    return Wants(words=(Words(words, query.topic, SHARE, untrusted=True),) if words else ())


def requested_period(asked: UnderstandingOptions) -> Period | None:
    """Return the days that hits should be about by the options; they override the text.

    Raises:
        InvalidInput: if the time range is invalid.
    """
    value = asked.time_range
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
