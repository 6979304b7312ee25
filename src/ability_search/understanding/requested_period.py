"""Period that a query asks for.

In addition to the dates of :mod:`.written_dates`, with T the day of the query:

* ``today``, ``yesterday``, ``tomorrow``, ``last Tuesday``, ``on Tuesday``: the latest before T;
* ``this``, ``last``, ``next`` with ``week`` (Monday to Sunday), ``weekend``, ``month``,
  ``quarter``, ``year``, a month or a season; ``earlier this year`` ends with T;
* ``past 30 days``, ``last two weeks``, ``past month``: that many days up to T;
* ``upcoming``: T and later; ``by Friday``: up to the next one;
* ``week 12``, ``KW 12``, ``semaine 12``: the latest that has begun by T, Monday to Sunday;
* ``3 weeks ago``: the week around that day; likewise days, months and years;
* ``in March``, ``March 12``, ``5. März``, ``le 5 mars``, ``Q2``: the latest that has begun by T, or
  of the year of the date they are joined with (``January to March 2026``);
* ``2026`` at the beginning of the query.

``since``, ``after``, ``before``, ``until``, ``by``, ``older than``, ``onwards`` open an end.
Words within quotation marks are ignored. Ambiguous words (``may``, ``march``, ``spring``) need
another word that makes them a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ability_search.understanding.cues import Cue
from ability_search.understanding.periods import Period, date_of
from ability_search.understanding.relative_dates import Mention, mentions
from ability_search.understanding.sentence_types import masked
from ability_search.understanding.written_dates import FLAGS

RELATIONS: Final[Mapping[str, tuple[Cue, ...]]] = {
    "since": (
        Cue("since", "outages since March 2026", "outages since we moved"),
        Cue("starting", "plans starting 2026-03-12", "plans starting now"),
        Cue(r"starting\s+in", "plans starting in March 2026", "starting in a container"),
        Cue(r"starting\s+from", "plans starting from March 2026", "starting from scratch"),
        Cue(r"beginning\s+in", "plans beginning in March 2026", "beginning in a town"),
        Cue(r"no\s+earlier\s+than", "no earlier than 2026-04-01", "no earlier than planned"),
    ),
    "after": (
        Cue("after", "incidents after March 2026", "incidents after a deploy"),
        Cue(r"later\s+than", "later than March 2026", "later than planned"),
        Cue(r"newer\s+than", "newer than March 2026", "newer than version 3"),
    ),
    "before": (
        Cue("before", "notes before 2024", "notes before lunch"),
        Cue(r"prior\s+to", "notes prior to 2024-01-01", "notes prior to a move"),
        Cue(r"earlier\s+than", "earlier than March 2026", "earlier than planned"),
        Cue(r"older\s+than", "older than 2024-01-01", "older than version 3"),
    ),
    "until": (
        Cue("until", "open until May 2024", "open until further notice"),
        Cue("till", "open till May 2024", "a till with coins"),
        Cue(r"up\s+to", "notes up to 2024-05-01", "up to 10 users"),
        Cue(r"up\s+until", "notes up until May 2024", "notes up until he left"),
        Cue(r"no\s+later\s+than", "no later than 2026-04-01", "no later than planned"),
        Cue("by", "done by 2026-04-01", "done by the team"),
    ),
    "week": (Cue(r"week\s+of", "the week of 2026-03-09", "a week of holidays"),),
}
"""Words before a period by their effect: an open end, or the week of a day."""
_PLAIN = (
    "in", "on", "during", "within", "throughout", "over", "of", "for", "from", "between", "around",
    "about", "at", "dated", r"in\s+the\s+month\s+of", r"back\s+in",
    "am", "im", "vom", "der", r"in\s+der", "au", "du", "en", "le", "la", "de", "del", r"de\s+la",
    r"en\s+la",
)  # fmt: skip
_RELATED = {cue.pattern: relation for relation, cues in RELATIONS.items() for cue in cues}
_WORDS = "|".join(sorted((*_RELATED, *_PLAIN), key=len, reverse=True))
_BEFORE = re.compile(rf"(?:\b({_WORDS})\s+)?(?:\bthe\s+)?$", FLAGS)
_BEHIND = re.compile(
    r"\s+(?:onwards?|(?:and|or)\s+(?:(?P<until>earlier|older)|later|newer))\b",
    FLAGS,
)
_POSSESSIVE = re.compile(r"['’]s?(?=\s|$)|[的の]")
_LINK = re.compile(
    r"\s*+(?:-|–|—|(?:,\s*+)?\b(?:to|until|till|through|thru|and|or)\b)\s*+(?:the\s++)?|\s*+,\s*+",
    FLAGS,
)


@dataclass(frozen=True, slots=True)
class Timeframe:
    """The period that a query asks for, and the spans in characters that name it, in order."""

    period: Period
    spans: tuple[tuple[int, int], ...]


def find_timeframe(text: str, *, today: int) -> Timeframe | None:
    """Return the period that a query names, ``None`` if it names none.

    Several periods are combined: opposite open ends to the days between them, else everything
    from the first day to the last.

    Args:
        text: The query.
        today: The day of the query, see :mod:`.periods`.
    """
    period: Period | None = None
    spans: list[tuple[int, int]] = []
    plain = masked(text)
    for group in _groups(plain, mentions(plain, today=today)):
        start, end, relation = _surroundings(plain, group)
        whole = _whole(group)
        related = _related(whole, relation) if len(group) == 1 else whole
        period = related if period is None else _combined(period, related)
        spans.append((start, end))
    return None if period is None else Timeframe(period, tuple(spans))


def _groups(text: str, found: list[Mention]) -> list[list[Mention]]:
    """Group mentions joined by a dash, a comma, ``to``, ``and`` or ``or``."""
    groups: list[list[Mention]] = []
    for mention in found:
        if groups and _LINK.fullmatch(text, groups[-1][-1].end, mention.start):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return groups


def _whole(group: list[Mention]) -> Period:
    """Return all days of joined periods; a missing year is taken from the next or previous one."""
    dated = list(group)
    for at in range(len(dated) - 2, -1, -1):
        dated[at] = _near(dated[at], dated[at + 1].period.first, step=-1)
    if len(dated) > 1 and not group[-2].in_year:
        dated[-1] = _near(dated[-1], dated[-2].period.first, step=1)
    whole = dated[0].period
    for mention in dated[1:]:
        whole = _hull(whole, mention.period)
    return whole


def _near(mention: Mention, day: int | None, *, step: int) -> Mention:
    """Resolve a mention without a year in the year of ``day``, or ``step`` years later.

    The latter if it would otherwise begin after that day (step -1) or before it (step 1). It is
    unchanged if there is no such day.
    """
    if mention.in_year is None or day is None:
        return mention
    try:
        year = date_of(day).year
        period = mention.in_year(year)
        if period.first is not None and step * (period.first - day) < 0:
            period = mention.in_year(year + step)
    except ValueError:
        return mention
    return replace(mention, period=period)


def _surroundings(text: str, group: list[Mention]) -> tuple[int, int, str]:
    """Return the span of a group with the words that belong to it, and their relation."""
    before = _BEFORE.search(text, max(0, group[0].start - 40), group[0].start)
    behind = _BEHIND.match(text, group[-1].end)
    start = before.start() if before else group[0].start
    if behind:
        return start, behind.end(), "until" if behind["until"] else "since"
    word = r"\s+".join((before[1] or "").lower().split()) if before else ""
    owner = _POSSESSIVE.match(text, group[-1].end)
    return start, owner.end() if owner else group[-1].end, _RELATED.get(word, "")


def _related(period: Period, relation: str) -> Period:
    first, last = period.first, period.last
    if relation == "since":
        return Period(first, None)
    if relation == "until":
        return Period(None, last)
    if relation == "after" and last is not None:
        return Period(last + 1, None)
    if relation == "before" and first is not None:
        return Period(None, first - 1)
    if relation == "week" and first is not None and first == last:
        return Period(first, first + 6)
    return period


def _combined(one: Period, other: Period) -> Period:
    low, high = (one, other) if one.last is None else (other, one)
    opposite = low.last is None and high.first is None
    if opposite and low.first is not None and high.last is not None and low.first <= high.last:
        return Period(low.first, high.last)
    return _hull(one, other)


def _hull(one: Period, other: Period) -> Period:
    first = None if one.first is None or other.first is None else min(one.first, other.first)
    last = None if one.last is None or other.last is None else max(one.last, other.last)
    return Period(first, last)
