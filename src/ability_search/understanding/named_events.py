"""Time questions without a date: ``what was set up before the outage``, ``when was it``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ability_search.understanding.periods import Period
from ability_search.understanding.quotations import masked
from ability_search.understanding.sentence_types import is_instruction, is_statement

Relation = Literal["before", "after"]

REACH_DAYS: Final = 180
"""Number of days that ``before`` or ``after`` an event covers."""

_FLAGS = re.IGNORECASE
_HAPPENED = (
    r"\b(?:was|were|had|did|happened|occurred|changed|changes|events?|incidents?|done|made|added"
    r"|introduced|deployed|shipped|decided|decisions|who\s+(?:\w+ed|left|came)"
    r"|(?:everything|new|news)(?=\s+(?:before|after|since)\b))\b"
)
_EVENT = re.compile(
    rf"{_HAPPENED}.*?\s(?P<clause>(?P<relation>before|prior\s+to|leading\s+up\s+to|after|since"
    r"|following)\s+(?:the|our|that|this)\s+(?P<event>[^,.;:!?\ue000]+?))\s*[.?!]*\s*$",
    _FLAGS,
)
_DATED = (
    r"(?:audit|birth|closing|completion|cutover|delivery|departure|deprecation|due|effective|election"
    r"|end(?:-of-life)?|expiration|expiry|founding|freeze|hire|hiring|kickoff|launch|migration"
    r"|publication|release|renewal|retirement|rollout|ship(?:ping)?|shutdown|signing|start|sunset"
    r"|termination|wedding)"
)
_WHEN = re.compile(
    r"\b(?:when\s+(?:was|were|did|will|had)|since\s+when|how\s+long\s+ago"
    r"|when\s+(?:is|are|has|have)\s+(?:my|our|the|their|your)(?!\s+(?:best|right)\b)"
    r"|(?:what|which)\s+(?:date|day|month|year|quarter)(?!\s+(?:format|of\s+the|picker|type))"
    rf"|dates?\s+of(?!\s+birth\b))\b|\b{_DATED}\s+dates?\W*$",
    _FLAGS,
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of unknown date in a query, and on which side of it to search.

    Attributes:
        relation: Whether to search before or after it.
        phrase: The event as the query names it.
        start: Offset in characters of the clause that ends with it: ``before the outage``.
        end: Offset after the last character of both.
    """

    relation: Relation
    phrase: str
    start: int
    end: int

    def period(self, happened: Period) -> Period:
        """Return the days to search, given those of the event: at most :data:`REACH_DAYS`.

        Raises:
            ValueError: if ``happened`` is open at that end.
        """
        end = happened.first if self.relation == "before" else happened.last
        if end is None:
            raise ValueError("an event has a first and a last day")
        if self.relation == "before":
            return Period(end - REACH_DAYS, end - 1)
        return Period(end + 1, end + REACH_DAYS)


def find_event(text: str) -> Event | None:
    """Return the event that ends a question about what happened; ``None`` if there is none.

    A statement (``the server was restarted after the outage``) names no event.
    """
    plain = masked(text)
    match = _EVENT.search(plain)
    if match is None or is_statement(plain):
        return None
    early = match["relation"].lower() not in {"after", "since", "following"}
    phrase = text[slice(*match.span("event"))]
    return Event("before" if early else "after", phrase, *match.span("clause"))


def asks_for_date(text: str) -> bool:
    """Return whether the answer is a date: ``when was``, ``which year``, ``sunset date``.

    ``when does`` and ``when to`` ask for a rule, not for a date; neither do statements and
    instructions (``sort by date``).
    """
    plain = masked(text)
    if _WHEN.search(plain) is None:
        return False
    return not (is_statement(plain) or is_instruction(plain))
