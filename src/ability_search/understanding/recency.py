"""Queries for the newest or the oldest: ``latest deployment``, ``what was the last incident``.

``last`` and ``first`` count in questions about the past and before events only, not in ``what is
the last element``. Questions how to do something (``how to find the newest file``) and statements
(``the latest results are poor``) do not count. Words within quotation marks are ignored.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from ability_search.understanding.cues import Cue, any_of
from ability_search.understanding.sentence_types import is_instruction, is_statement, masked

Order = Literal["newest", "oldest"]

NEWEST: Final = (
    Cue(
        r"most\s+recent(?:ly)?",
        "most recent incident",
        "can I undo the most recent change",
    ),
    Cue("latest", "latest deployment of the cart service", "done by Friday at the latest"),
    Cue("newest", "summary of the newest notes", "how to find the newest file in a directory"),
    Cue("recent(?:ly)?", "what changed recently", "the recently added results are poor"),
    Cue("lately", "what is slow lately", 'titles with "lately" in them'),
)
OLDEST: Final = (
    Cue("oldest", "oldest configuration still in use", "both the oldest and the newest notes"),
    Cue("earliest", "earliest mention of the merger", "at the earliest convenience"),
)


def _alone(words: str) -> str:
    """Return a pattern of words that are not part of a name such as ``image:latest``."""
    return rf"(?<![\w:@/.=+-])(?:{words})(?![\w:@/=+-]|\.\w)"


_AGO = r"(?<!\bbefore\sthe\s)(?<!\bafter\sthe\s)(?<!\bsince\sthe\s)"
"""Not within a clause of time: ``what changed before the last outage``."""
_NO_EVENT = r"(?!\s+(?:names?|mile|resort|minute|words?|elements?|items?|one|aid|class|floor)\b)"
_EVENT = (
    r"(?:appointment|conversation|deploy(?:ment)?|discussion|incident|meeting|mention|outage|release"
    r"|visit)\s+(?:about|at|by|for|in|of|on|to|where|with)\b"
)

LAST: Final = (
    Cue(
        r"^\W*(?:what|which|when|who|whose|where)\b"
        rf"(?=.*?\b(?:was|were|did|had|has|have)\b).*?{_AGO}{_alone('last')}{_NO_EVENT}",
        "what was the last incident",
        "what is the last element of a list",
    ),
    Cue(r"^\W*who\s+last\s", "who last edited the budget", "who can last an hour"),
    Cue(
        r"^\W*(?:the\s+)?last\s+time\s+(?:i|we|you|they|he|she|it|our|my|the)\s",
        "last time we talked about pricing",
        "last time zone in the list",
    ),
    Cue(
        rf"^\W*(?:the\s+)?last\s+{_EVENT}",
        "last meeting with Acme",
        "the last meeting room on the left",
    ),
)
"""Words that ask for the newest in questions about the past."""
FIRST: Final = (
    Cue(
        r"^\W*(?:what|which|when|who|whose|where)\b"
        rf"(?=.*?\b(?:was|were|did|had|has|have)\b).*?{_AGO}{_alone('(?-i:first)')}(?=\s){_NO_EVENT}",
        "what was the first incident",
        "what is the first element of a list",
    ),
    Cue(r"^\W*who\s+first\s", "who first edited the budget", "who comes first"),
    Cue(
        r"^\W*(?:the\s+)?first\s+time\s+(?:i|we|you|they|he|she|it|our|my|the)\s",
        "the first time we talked about pricing",
        "first time buyers",
    ),
    Cue(
        rf"^\W*(?:the\s+)?first\s+{_EVENT}",
        "the first release of the cart service",
        "the first release candidate",
    ),
)
"""Words that ask for the oldest in questions about the past."""


def _of_time(cues: tuple[Cue, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\bat\sthe\s){_alone(any_of(cues))}(?!\s+possible\b)", re.IGNORECASE)


_NEWEST = _of_time(NEWEST)
_OLDEST = _of_time(OLDEST)
_LAST = re.compile(any_of(LAST), re.IGNORECASE)
_FIRST = re.compile(any_of(FIRST), re.IGNORECASE)
_HOW = re.compile(
    r"""
    \bhow\s+(?:to|do|does|can|could|should|would|is|are)\b
    | ^\W*(?:does|(?:can|could|should|do)\s+(?:i|we|you\s+have\s+to|one))\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def find_order(text: str) -> Order | None:
    """Return whether a query asks for the newest or the oldest; ``None`` if for neither or both."""
    plain = masked(text)
    newest = any(pattern.search(plain) for pattern in (_NEWEST, _LAST))
    oldest = any(pattern.search(plain) for pattern in (_OLDEST, _FIRST))
    if newest == oldest or _HOW.search(plain) or is_statement(plain) or is_instruction(plain):
        return None
    return "newest" if newest else "oldest"
