"""What a query means: its topic, what it excludes, and the time it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ability_search.understanding.events import Event, asks_for_date, find_event
from ability_search.understanding.exclusion import (
    TIME,
    Exclusions,
    find_exclusions,
    has_content,
    without,
)
from ability_search.understanding.order import Order, find_order
from ability_search.understanding.periods import Period, day_of
from ability_search.understanding.timeframe import find_timeframe

QUERY_WORDS: Final = 50
"""Anything longer is a text to compare with, not a question, and is left as it is."""
_LENGTH: Final = 2000
"""Characters of as many words, however long they are."""
PHRASES_LIMIT: Final = 16
"""Phrases of a query that are pushed down, the first ones; all are left out of its topic."""


@dataclass(frozen=True, slots=True)
class Recognized:
    """A span of the query, in characters, that is an exclusion or a time."""

    kind: Literal["exclusion", "time"]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Intent:
    """A query understood.

    Attributes:
        text: As it was asked.
        topic: Without exclusions and times: what to embed and to search for by its words. Never
            without a word of content, unless the query is.
        excluded: Phrases to push down, those of the caller last.
        period: The days asked for, if any.
        event: What took place before or after what is asked for, if no day says so. Where there
            is a period besides, it is that beside the event.
        asks_for_date: Whether the answer is a date.
        order: Which end of time is asked for.
        recognized: What was taken out of ``text``, in order; times stay if all else is empty.
    """

    text: str
    topic: str
    excluded: tuple[str, ...] = ()
    period: Period | None = None
    event: Event | None = None
    asks_for_date: bool = False
    order: Order | None = None
    recognized: tuple[Recognized, ...] = ()

    @property
    def words(self) -> str:
        """The text with its times, but without exclusions: for a search that has words alone."""
        return _outside(self.text, [each for each in self.recognized if each.kind == "exclusion"])

    def beside(self, happened: Period) -> Intent:
        """What is meant once the days of the event are known: its clause says when, not what.

        Raises:
            ValueError: if there is no event, or ``happened`` is open at that end.
        """
        if self.event is None:
            raise ValueError("the query names no event")
        topic, recognized = self._beside
        return replace(self, topic=topic, period=self.event.period(happened), recognized=recognized)

    @property
    def beside_topic(self) -> str:
        """The topic that :meth:`beside` leaves."""
        return self._beside[0]

    @property
    def _beside(self) -> tuple[str, tuple[Recognized, ...]]:
        if self.event is not None:
            clause = Recognized("time", self.event.start, self.event.end)
            recognized = tuple(sorted((*self.recognized, clause), key=lambda each: each.start))
            topic = _outside(self.text, recognized)
            if has_content(topic):
                return topic, recognized
        return self.topic, self.recognized


def understand(
    text: str,
    *,
    now: int,
    exclude: Sequence[str] = (),
    period: Period | None = None,
    order: Order | None = None,
    exclusion: bool = True,
    temporal: bool = True,
) -> Intent:
    """Read a query.

    Args:
        text: The query.
        now: Epoch milliseconds; what is said relative to now is meant in days of UTC.
        exclude: What the caller excludes, in addition to what the query says.
        period: What the caller asks for, instead of what the query says.
        order: Likewise, which end of time.
        exclusion: Whether to look for exclusions in the text.
        temporal: Whether to look for times in the text.
    """
    readable = len(text) <= _LENGTH and len(text.split()) <= QUERY_WORDS
    exclusion, temporal = exclusion and readable, temporal and readable
    found = find_timeframe(text, today=day_of(now)) if temporal else None
    times = found.spans if found else ()
    exclusions = find_exclusions(_marked(text, times)) if exclusion else Exclusions(text)
    recognized = _recognized(exclusions, times)
    if not has_content(_outside(text, recognized)):
        recognized = _recognized(exclusions, ())
    phrases = [each.phrase for each in exclusions.excluded[:PHRASES_LIMIT]]
    if period is None and found is not None:
        period = found.period
    undated = temporal and period is None
    event = find_event(text) if undated else None
    if order is None and temporal:
        clauses = [(event.start, event.end)] if event else []
        order = find_order(_marked(text, [*times, *clauses]))
    return Intent(
        text=text,
        topic=_outside(text, recognized),
        excluded=_distinct([*phrases, *exclude]),
        period=period,
        event=event,
        asks_for_date=undated and asks_for_date(text),
        order=order,
        recognized=recognized,
    )


def _recognized(exclusions: Exclusions, times: Sequence[tuple[int, int]]) -> tuple[Recognized, ...]:
    found = [Recognized("time", *span) for span in times]
    found += [Recognized("exclusion", *span) for span in exclusions.spans]
    return tuple(sorted(found, key=lambda each: each.start))


def _outside(text: str, recognized: Sequence[Recognized]) -> str:
    return without(text, [(each.start, each.end) for each in recognized])


def _marked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Replace times by as many marks: they end what is excluded, and are content."""
    for start, end in spans:
        text = text[:start] + TIME * (end - start) + text[end:]
    return text


def _distinct(phrases: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for phrase in phrases:
        if kept := phrase.strip():
            found.setdefault(kept.casefold(), kept)
    return tuple(found.values())
