"""Query understanding: topic, exclusions and time of a query, of its text and of its options.

``latest deployment`` and ``what was the last incident`` ask for the newest. ``last`` and ``first``
count in questions about the past only, not in ``what is the last element``. Questions how to do
something (``how to find the newest file``) and statements (``the latest results are poor``) do not
count. Words within quotation marks are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from ability_search.errors import InvalidInput
from ability_search.extensions.understanding import Order, Temporal, UnderstandingOptions
from ability_search.extensions.understanding.exclusions import (
    TIME,
    Exclusions,
    find_exclusions,
    has_content,
    without,
)
from ability_search.extensions.understanding.intent_scores import (
    CLOSENESS,
    EXCLUSION,
    ORDER,
    RequestedOrder,
    RequestedTime,
)
from ability_search.extensions.understanding.periods import Period, day_of, iso_day
from ability_search.extensions.understanding.query_expansion import SHARE
from ability_search.extensions.understanding.requested_period import find_timeframe
from ability_search.extensions.understanding.sentence_types import (
    is_instruction,
    is_statement,
    masked,
)
from ability_search.filters.operands import instants
from ability_search.search.candidates import Answer
from ability_search.search.query import Query
from ability_search.search.response import Understood
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import NOTHING, Wants, Words

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


def understand(text: str, option: UnderstandingOptions, *, now: int) -> Intent:
    """Analyze a query; what its options say of a time takes the place of what its text says.

    Args:
        text: The query, or another phrasing of it.
        option: The options of its request.
        now: Epoch milliseconds; relative times are resolved to days in UTC.

    Raises:
        InvalidInput: if the time range is invalid.
    """
    temporal = option.temporal or Temporal()
    timed = temporal.weight != 0
    readable = len(text) <= _LENGTH and len(text.split()) <= QUERY_WORDS and option.understand
    found = find_timeframe(text, today=day_of(now)) if readable and timed else None
    times = found.spans if found else ()
    marked = text
    for start, end in times:
        # Marks of the same length: they end an exclusion, and are content.
        marked = marked[:start] + TIME * (end - start) + marked[end:]
    exclusions = find_exclusions(marked) if readable else Exclusions(text)
    recognized = _recognized(exclusions, times)
    if not has_content(_outside(text, recognized)):
        recognized = _recognized(exclusions, ())
    period = requested_period(option) if timed else None
    order = temporal.order if timed else None
    return Intent(
        text=text,
        topic=_outside(text, recognized),
        excluded=_distinct([*exclusions.excluded[:PHRASES_LIMIT], *option.exclude]),
        period=period or (found.period if found else None),
        order=order or (find_order(marked) if readable and timed else None),
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


def requested_period(asked: UnderstandingOptions) -> Period | None:
    """Return the days that hits should be about by the options.

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


def _recognized(exclusions: Exclusions, times: Sequence[tuple[int, int]]) -> tuple[Recognized, ...]:
    found = [Recognized("time", *span) for span in times]
    found += [Recognized("exclusion", *span) for span in exclusions.spans]
    return tuple(sorted(found, key=lambda each: each.start))


def _outside(text: str, recognized: Sequence[Recognized]) -> str:
    return without(text, [(each.start, each.end) for each in recognized])


def _distinct(phrases: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for phrase in map(str.strip, phrases):
        if phrase:
            found.setdefault(phrase.casefold(), phrase)
    return tuple(found.values())


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
        own = understood(query, option)
        others = tuple(understood(other, option) for other in query.others)
        return replace(own, others=others) if others else own

    answer.query = await ports.turns.run(understand_all, work=query.work)


def understood(query: Query, option: UnderstandingOptions) -> Query:
    """Return the query with what its text and its options say."""
    temporal = option.temporal or Temporal()
    intent = understand(query.asked.query, option, now=query.as_of or 0)
    options: dict[str, Any] = dict(query.options)
    if intent.words != intent.topic:
        options[_WORDS] = intent.words
    if intent.excluded:
        phrases = {f"excluded{place}": text for place, text in enumerate(intent.excluded)}
        options[EXCLUSION] = phrases
    if intent.period is not None:
        options[CLOSENESS] = RequestedTime(
            intent.period, option.time_range is not None, temporal.weight, temporal.sigma_days
        )
    if intent.order is not None:
        options[ORDER] = RequestedOrder(intent.order, temporal.weight)
    if not (intent.excluded or intent.period or intent.order):
        return replace(query, topic=intent.topic, options=options, understood=None)
    first, last = (intent.period.first, intent.period.last) if intent.period else (None, None)
    found = Understood(
        excluded=list(intent.excluded) or None,
        start=None if first is None else iso_day(first),
        end=None if last is None else iso_day(last),
        order=intent.order,
    )
    explained = {
        "topic": intent.topic,
        "excluded": list(intent.excluded),
        "period": {"from": found.start, "to": found.end} if intent.period else None,
        "order": intent.order,
        "spans": [span._asdict() for span in intent.recognized],
    }
    return replace(
        query,
        topic=intent.topic,
        options=options,
        understood=found,
        explained={**query.explained, "understood": explained},
    )


def _wants(_option: UnderstandingOptions, query: Query) -> Wants:
    """Return the words of a time, which add nothing to a model that knows the texts."""
    words = query.options.get(_WORDS)
    return Wants(words=(Words(words, query.topic, SHARE, untrusted=True),)) if words else NOTHING


_WORDS = "words"
"""Option with the text without exclusions but with times."""
QUERY_UNDERSTANDING = Stage(
    "understanding", Phase.UNDERSTAND, 10, understand_query, option=asked_for, wants=_wants, step=""
)
