"""Time questions without a date: ``what was set up before the outage``, ``when was it``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ability_search.understanding.cues import Cue, any_of
from ability_search.understanding.periods import Period
from ability_search.understanding.sentence_types import is_instruction, is_statement, masked

Relation = Literal["before", "after"]

REACH_DAYS: Final = 180
"""Number of days that ``before`` or ``after`` an event covers."""

BEFORE: Final = (
    Cue("before", "what was set up before the outage", "checklist before the deployment"),
    Cue(
        r"prior\s+to",
        "who was hired prior to that reorganisation",
        "knowledge prior to the exam",
    ),
    Cue(
        r"leading\s+up\s+to",
        "events leading up to the merger",
        "stairs leading up to the roof",
    ),
)
AFTER: Final = (
    Cue("after", "what changed after our move to Berlin?", "error after the upgrade"),
    Cue("since", "what's new since the merger", "users since the merger"),
    Cue("following", "decisions following the board meeting", "decide following the guidelines"),
)
DATES: Final = (
    Cue(
        r"\bwhen\s+(?:was|were|did|will|had)\b",
        "when was the schema last modified",
        '"when was" in the logs',
    ),
    Cue(r"\bsince\s+when\b", "since when do we use Redis?", "update the since when column"),
    Cue(r"\bhow\s+long\s+ago\b", "how long ago did it break", "how long does it take"),
    Cue(
        r"\bwhen\s+(?:is|are|has|have)\s+(?:my|our|the|their|your)(?!\s+(?:best|right)\b)\b",
        "when is the release",
        "when is the best season",
    ),
    Cue(
        r"\b(?:what|which)\s+(?:date|day|month|year|quarter)"
        r"(?!\s+(?:format|of\s+the|picker|type))\b",
        "which year did we move",
        "which date format does it use",
    ),
    Cue(r"\bdates?\s+of(?!\s+birth\b)\b", "date of the audit?", "date of birth field"),
    Cue(
        r"\b(?:audit|birth|closing|completion|cutover|delivery|departure|deprecation|due|effective"
        r"|election|end(?:-of-life)?|expiration|expiry|founding|freeze|hire|hiring|kickoff|launch"
        r"|migration|publication|release|renewal|retirement|rollout|ship(?:ping)?|shutdown|signing"
        r"|start|sunset|termination|wedding)\s+dates?\W*$",
        "v1 API sunset date",
        "The file has a release date.",
    ),
)
"""Words that ask for a date."""

_HAPPENED = (
    r"\b(?:was|were|had|did|happened|occurred|changed|changes|events?|incidents?|done|made|added"
    r"|introduced|deployed|shipped|decided|decisions|who\s+(?:\w+ed|left|came)"
    r"|(?:everything|new|news)(?=\s+(?:before|after|since)\b))\b"
)
_EVENT = re.compile(
    rf"{_HAPPENED}.*?\s(?P<clause>(?:(?P<before>{any_of(BEFORE)})|{any_of(AFTER)})"
    r"\s+(?:the|our|that|this)\s+(?P<event>[^,.;:!?\ue000]+?))\s*[.?!]*\s*$",
    re.IGNORECASE,
)
_ASKS_FOR_DATE = re.compile(any_of(DATES), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of unknown date in a query, and on which side of it to search.

    Attributes:
        relation: ``before`` or ``after`` the event.
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
    phrase = text[slice(*match.span("event"))]
    return Event("before" if match["before"] else "after", phrase, *match.span("clause"))


def asks_for_date(text: str) -> bool:
    """Return whether the answer is a date: ``when was``, ``which year``, ``sunset date``.

    ``when does`` and ``when to`` ask for a rule, not for a date; neither do statements and
    instructions (``sort by date``).
    """
    plain = masked(text)
    if _ASKS_FOR_DATE.search(plain) is None:
        return False
    return not (is_statement(plain) or is_instruction(plain))
