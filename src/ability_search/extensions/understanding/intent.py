"""Intent of a query: topic, exclusions and time.

``latest deployment`` and ``what was the last incident`` ask for the newest. ``last`` and ``first``
count in questions about the past only, not in ``what is the last element``. Questions how to do
something (``how to find the newest file``) and statements (``the latest results are poor``) do not
count. Words within quotation marks are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ability_search.extensions.understanding.exclusions import (
    TIME,
    Exclusions,
    find_exclusions,
    has_content,
    without,
)
from ability_search.extensions.understanding.periods import Period, day_of
from ability_search.extensions.understanding.requested_period import find_timeframe
from ability_search.extensions.understanding.sentence_types import (
    is_instruction,
    is_statement,
    masked,
)

Order = Literal["newest", "oldest"]

QUERY_WORDS: Final = 80
"""Maximum words of a query to analyze; a longer text is an example to compare with."""
_LENGTH: Final = 2000
"""Maximum characters of a query to analyze."""
PHRASES_LIMIT: Final = 16
"""Maximum number of excluded phrases used, the first ones; all are removed from the topic."""
_NEWEST_WORDS: Final = (
    r"most\s+recent(?:ly)?|latest|newest|recent(?:ly)?|lately"
    r"|(?:neu|aktuell)este[nrsm]?|neulich|kürzlich|plus\s+récente?s?|récemment"
    r"|más\s+recientes?|recientemente"
)
_OLDEST_WORDS: Final = (
    r"oldest|earliest|(?:älte|frühe)ste[nrsm]?|plus\s+ancien(?:ne)?s?|más\s+antigu[oa]s?"
)


def _of_time(words: str, chinese: str) -> re.Pattern[str]:
    """Return a pattern of words that are not part of a name such as ``image:latest``."""
    return re.compile(
        rf"(?<!\bat\sthe\s)(?<![\w:@/.=+-])(?:{words})(?![\w:@/=+-]|\.\w)(?!\s+possible\b)|{chinese}",
        re.IGNORECASE,
    )


_NEWEST = _of_time(_NEWEST_WORDS, "最新|最近(?=的)")
_OLDEST = _of_time(_OLDEST_WORDS, "最早|最旧")
_PAST = r"""
    ^\W*(?:what|which|when|who|whose|where)\b (?=.*?\b(?:was|were|did|had|has|have)\b)
    .*? (?<!\bbefore\sthe\s)(?<!\bafter\sthe\s)(?<!\bsince\sthe\s) (?<![\w:@/.=+-])(?-i:%s)(?=\s)
    (?!\s+(?:names?|mile|resort|minute|words?|elements?|items?|one|aid|class|floor|place)\b)
"""
_LAST, _FIRST = (re.compile(_PAST % word, re.IGNORECASE | re.VERBOSE) for word in ("last", "first"))
_HOW = re.compile(
    r"""
    \bhow\s+(?:to|do|does|can|could|should|would|is|are)\b
    | ^\W*(?:does|(?:can|could|should|do)\s+(?:i|we|you\s+have\s+to|one))\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


class Recognized(NamedTuple):
    """A span of the query, in characters, that is an exclusion or a time."""

    kind: Literal["exclusion", "time"]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Intent:
    """The analysis of a query.

    Attributes:
        text: The query as given.
        topic: Text without exclusions and times, to search for. Has a content word unless
            the query has none.
        excluded: Excluded phrases, those of the caller last.
        period: The days asked for, if any.
        order: Whether the query asks for the newest or the oldest.
        recognized: The spans removed from ``text``, in order; times stay if nothing else is left.
    """

    text: str
    topic: str
    excluded: tuple[str, ...] = ()
    period: Period | None = None
    order: Order | None = None
    recognized: tuple[Recognized, ...] = ()

    @property
    def words(self) -> str:
        """Text without exclusions but with times, which texts may contain as they are written."""
        return _outside(self.text, [each for each in self.recognized if each.kind == "exclusion"])


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
    """Analyze a query.

    Args:
        text: The query.
        now: Epoch milliseconds; relative times are resolved to days in UTC.
        exclude: Phrases that the caller excludes, in addition to those of the query.
        period: Period that the caller asks for; overrides that of the query.
        order: Order in time that the caller asks for; overrides that of the query.
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
    if period is None and found is not None:
        period = found.period
    if order is None and temporal:
        order = find_order(_marked(text, times))
    return Intent(
        text=text,
        topic=_outside(text, recognized),
        excluded=_distinct([*exclusions.excluded[:PHRASES_LIMIT], *exclude]),
        period=period,
        order=order,
        recognized=recognized,
    )


def find_order(text: str) -> Order | None:
    """Return whether a query asks for the newest or the oldest; ``None`` if for neither or both."""
    plain = masked(text)
    newest = any(pattern.search(plain) for pattern in (_NEWEST, _LAST))
    oldest = any(pattern.search(plain) for pattern in (_OLDEST, _FIRST))
    if newest == oldest or _HOW.search(plain) or is_statement(plain) or is_instruction(plain):
        return None
    return "newest" if newest else "oldest"


def _recognized(exclusions: Exclusions, times: Sequence[tuple[int, int]]) -> tuple[Recognized, ...]:
    found = [Recognized("time", *span) for span in times]
    found += [Recognized("exclusion", *span) for span in exclusions.spans]
    return tuple(sorted(found, key=lambda each: each.start))


def _outside(text: str, recognized: Sequence[Recognized]) -> str:
    return without(text, [(each.start, each.end) for each in recognized])


def _marked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Replace times by marks of the same length: they end an exclusion, and are content."""
    for start, end in spans:
        text = text[:start] + TIME * (end - start) + text[end:]
    return text


def _distinct(phrases: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for phrase in phrases:
        if kept := phrase.strip():
            found.setdefault(kept.casefold(), kept)
    return tuple(found.values())
