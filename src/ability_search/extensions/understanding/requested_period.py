"""Period that a query asks for, with T the day of the query.

* dates as in :mod:`.written_dates`; without a year (``in March``, ``5. März``, ``Q2``) the latest
  that has begun by T, or of the year of the date they are joined with (``January to March 2026``);
* ``today``, ``yesterday``, ``last Tuesday``, ``on Tuesday``: the latest before T;
* ``this``, ``last``, ``next`` with ``week`` (Monday to Sunday), ``weekend``, ``month``,
  ``quarter``, ``year``, a month or a season;
* ``past 30 days``, ``last two weeks``, ``past month``: that many days up to T;
* ``3 weeks ago``: the week around that day; likewise days, months and years.

``since``, ``after``, ``before``, ``until``, ``by``, ``older than``, ``onwards`` open an end. All
of this also in German, French, Spanish and Chinese. Words within quotation marks are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ability_search.extensions.understanding.periods import Period, date_of
from ability_search.extensions.understanding.sentence_types import masked
from ability_search.extensions.understanding.time_forms import Mention, mentions
from ability_search.extensions.understanding.time_words import Tokens, tokens_of

_BEFORE = re.compile(r"(?:[rugvihd<t][ '’-]){1,4}$")
_BEHIND = re.compile(r" f(?!\w)| ?z")
_OWNER = re.compile(r"['’]s?(?!\w)|\*")
_LINK = re.compile(r" ?(?:[-–—]|(?:, ?)?[ju&e]|,) ?(?:t )?")


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
    tokens = tokens_of(masked(text))
    period: Period | None = None
    spans: list[tuple[int, int]] = []
    for group in _groups(tokens, mentions(tokens, today=today)):
        first, last, relation = _surroundings(tokens, group)
        # A missing year is that of the last one that has a year.
        years = [place for place, each in enumerate(group) if each.in_year is None]
        at = years[-1] if years else len(group) - 1
        whole = group[at].period
        for place, each in enumerate(group):
            step = 1 if place > at else -1
            whole = _hull(whole, _adjoining(each, group[at].period, step=step))
        related = _related(whole, relation) if len(group) == 1 else whole
        period = related if period is None else _combined(period, related)
        spans.append(tokens.span(first, last))
    return None if period is None else Timeframe(period, tuple(spans))


def _groups(tokens: Tokens, found: list[Mention]) -> list[list[Mention]]:
    """Group mentions joined by a dash, a comma, ``to``, ``and`` or ``or``."""
    groups: list[list[Mention]] = []
    for mention in found:
        if groups and _LINK.fullmatch(tokens.kinds, groups[-1][-1].last, mention.first):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return groups


def _adjoining(mention: Mention, other: Period, *, step: int) -> Period:
    """Return the period of a mention, without a year the first after another, or the last before.

    It is unchanged if there is no such day.
    """
    if mention.in_year is None or other.first is None:
        return mention.period
    try:
        year = date_of(other.first).year
        period = mention.in_year(year)
        if period.first is not None and step * (period.first - other.first) < 0:
            return mention.in_year(year + step)
    except ValueError:
        return mention.period
    return period


def _surroundings(tokens: Tokens, group: list[Mention]) -> tuple[int, int, str]:
    """Return the tokens of a group with the words that belong to it, and their relation."""
    first, last = group[0].first, group[-1].last
    before = _BEFORE.search(tokens.kinds, max(0, first - 8), first)
    start = before.start() if before else first
    behind = _BEHIND.match(tokens.kinds, last)
    owner = _OWNER.match(tokens.kinds, last)
    end = behind.end() if behind else owner.end() if owner else last
    said = tokens.values(last, end) if behind else tokens.values(start, first)
    return start, end, next((str(value) for kind, value in said if kind in "rugvzf"), "")


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
