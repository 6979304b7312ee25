"""Forms of dates and times, as patterns of kinds of words, and the periods that they mean.

In a pattern ``#`` is a number of one or two digits and ``@`` the same as a day, such as ``3rd``;
letters are the kinds of words of :mod:`.time_words`. So each form holds in all languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil
from typing import Final

from ability_search.extensions.understanding.periods import Period, date_of, months, one_day
from ability_search.extensions.understanding.time_words import Tokens, Value

_ALONE = r"(?<![\w.:/-])"
_END = r"(?![\w%]|[.,:/-][129Yy])"
_NO_DATE = r"(?![\w%:]|-\w|[.,][129])"
_DAYS = r"@(?: ?[-–ju&h] ?@)?"
_MONTH = r"[Mmb]"
_UNIT = r"[U年月日]"
_COUNT = r"(?:(?:e )?C|[129])(?: d)?"

WRITTEN: Final = {
    "2026-03-12": r"(?<![^\W_])(?<![.:])(?<![129Yy][-/])[Yy](?:-#-#|/#/#|\.2\.2)(?![129Yy]|\.[129])"
    r"(?:[x ]2:2(?::2(?:[.,][129])?)?(?: ?x|[+-]2:?2)?)?",
    "2026年3月12日": r"[Yy] ?年(?: ?# ?月(?: ?# ?日)?)?",
    "12.03.2026": rf"{_ALONE}(?<!V )#\. ?#\. ?Y{_END}",
    "03/12/2026": rf"{_ALONE}#(?:/#/|-#-)[Yy]{_END}",
    "2026 Mar 12": rf"{_ALONE}[Yy][ -]{_MONTH}[ -]@{_END}",
    "3-7 March 2026": rf"{_ALONE}{_DAYS}\.?(?: d)?[ -]?{_MONTH}\.?,?(?: d)?[ -]?[Yy]{_END}",
    "March 12, 2026": rf"(?<!\w){_MONTH}\.? ?{_DAYS},? [Yy]{_END}",
    "March 2026": rf"(?<!\w){_MONTH}\.?,?[ -](?:d )?[Yy]{_END}",
    "2026-03": rf"{_ALONE}(?:Y-2|2/Y){_END}(?!-)",
    "Q1 2026": rf"(?<!\w)(?:[Qq]1|(?:[OL]|#[o.]) U)[ /-]?(?:d )?Y{_END}|(?<!\w)Y[ /-]?[Qq]1(?!\w)",
    "spring 2026": rf"(?<!\w)S (?:d )?[Yy]{_END}",
    "1990s": r"(?<![\w.-])[Yy]s(?!\w)",
    "in 2026": rf"(?:(?<=[iruvU][ -])|(?<=h d ))Y(?: ?[-–j] ?Y)?{_END}(?! ?B)"
    r"|(?<!\w\()(?<=\()Y(?=\))",
}
"""Dates with their year by example, in order of precedence."""

RELATIVE: Final = {
    "yesterday": r"(?<!_)T(?![-(_])|L E(?!\w)",
    "3 weeks ago": rf"(?:{_COUNT}|[eU]) ?{_UNIT} ?a(?!\w)|[vN] ?(?:{_COUNT}|e) ?{_UNIT}(?!\w)",
    "last 3 weeks": rf"(?:[Lp] ?{_COUNT}|{_COUNT} ?[Lp]|p) ?{_UNIT}(?![\w-])",
    "last month": rf"L ?{_UNIT}(?![\w-])|U[ -]L(?![\w-])",
    "2 May": rf"{_ALONE}(?:{_MONTH}\.? {_DAYS}|{_DAYS}(?: d)? [Mm]|# ?月 ?# ?日){_NO_DATE}"
    rf"|(?<=[hruvt] ){_DAYS}\.? ?{_MONTH}{_NO_DATE}",
    "last May": rf"L (?:[Mm]|S(?! B)){_NO_DATE}|(?:[Mm]|S) L(?! ?{_UNIT}){_NO_DATE}",
    "in May": rf"M(?!-?\w)|(?<=[iruv<][ -])[mb]{_NO_DATE}|(?<=d )m{_NO_DATE}"
    rf"|m(?= ?[-–ju&] ?{_MONTH})|b(?= ?[-–ju] ?{_MONTH})"
    rf"|(?:(?<=[MmY] [ju&] )|(?<=b [ju] )|(?<={_MONTH}[-–]))[mb]{_NO_DATE}"
    r"|Q1(?![\w:'’-]|\. \w)",
    "on Friday": r"(?:L ?|u |(?<=[hrv] ))w(?: E)?(?![\w-])|w L(?!\w)",
}
"""Times relative to the day of a query and dates without a year, in order of precedence."""


def _pattern(form: str) -> str:
    return form.replace("@", "[12]o?").replace("#", "[12]")


_WRITTEN = re.compile(
    "(?=[12YyMmbSOLQq])(?:{})".format(
        "|".join(f"(?P<form{n}>{_pattern(form)})" for n, form in enumerate(WRITTEN.values()))
    )
)
_RELATIVE = {name: re.compile(_pattern(form)) for name, form in RELATIVE.items()}
_DAYS_OF = {
    "hour": 1 / 24, "day": 1, "week": 7, "weekend": 7, "month": 30, "quarter": 91, "half": 182,
    "year": 365,
}  # fmt: skip
_PARTS = {"quarter": 4, "half": 2}

Values = Sequence[tuple[str, Value]]
"""Kinds and values of the words and numbers of a form, in order."""
InYear = Callable[[int], Period]
"""Resolves a period in a year; raises ValueError if the year has none."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A period that a text names.

    Attributes:
        period: The period.
        first: Its first token.
        last: The token after its last one.
        in_year: Resolves it in a given year, if it was named without one.
    """

    period: Period
    first: int
    last: int
    in_year: InYear | None = None


def written(tokens: Tokens) -> Iterator[Mention]:
    """Yield the periods that a text names with their year, in order."""
    names = list(WRITTEN)
    for match in _WRITTEN.finditer(tokens.kinds):
        first, last = match.span()
        name = names[int((match.lastgroup or "").removeprefix("form"))]
        try:
            yield Mention(_dated(name, tokens.values(first, last)), first, last)
        except ValueError:  # The calendar has no such day.
            continue


def mentions(tokens: Tokens, *, today: int) -> list[Mention]:
    """Return all periods that a query names on the day ``today``, in order, without overlaps."""
    found = list(written(tokens))
    for name, pattern in _RELATIVE.items():
        for match in pattern.finditer(tokens.kinds):
            first, last = match.span()
            if any(first < other.last and other.first < last for other in found):
                continue
            try:
                period, in_year = _relative(name, tokens.values(first, last), today)
            except ValueError:  # No such day, or the unit has no such form.
                continue
            found.append(Mention(period, first, last, in_year))
    return sorted(found, key=lambda mention: mention.first)


def _dated(name: str, values: Values) -> Period:
    years = [int(value) for kind, value in values if kind in "Yy"]
    numbers = [int(value) for kind, value in values if kind in "12"]
    if name == "2026-03-12":
        return one_day(years[0], numbers[0], numbers[1])
    if name in {"12.03.2026", "03/12/2026"}:
        day, month = numbers if name == "12.03.2026" or numbers[0] > 12 else numbers[::-1]
        return one_day(years[0], month, day)
    if name == "2026-03":
        if numbers[0] == (years[0] + 1) % 100:
            raise ValueError("a season from year to year")
        return months(date(years[0], numbers[0], 1).year, numbers[0])
    if name == "1990s":
        return months(years[0], 1, 120)
    in_year = _in_year(values)
    return in_year(years[0]).to(in_year(years[-1]))


def _in_year(values: Values) -> InYear:
    """Return the day, month, season, quarter or half of a year, or all of it.

    Raises:
        ValueError: if it is none of these.
    """
    named = dict(reversed(values))
    numbers = [int(value) for kind, value in values if kind in "12"]
    month = next((int(value) for kind, value in values if kind in "Mmb"), None)
    if "月" in named and numbers:
        month = numbers.pop(0)
    if month is not None and numbers:
        return lambda year: one_day(year, month, numbers[0]).to(one_day(year, month, numbers[-1]))
    if month is not None:
        return lambda year: months(date(year, month, 1).year, month)
    if "S" in named:
        return lambda year: months(year, int(named["S"]), 3)
    unit = named.get("Q") or named.get("q") or named.get("U", "year")
    if unit in _PARTS:
        count = _PARTS[str(unit)]
        number = numbers[0] if numbers else int(named.get("O", count))
        if number <= count:
            return lambda year: months(year, 1 + 12 // count * (number - 1), 12 // count)
    if unit != "year":
        raise ValueError("no part of a year")
    return lambda year: months(year, 1, 12)


def _relative(name: str, values: Values, today: int) -> tuple[Period, InYear | None]:
    named = dict(reversed(values))
    step = int(named.get("L", named.get("p", 0)))
    if name in {"2 May", "last May", "in May"}:
        in_year, which = _in_year(values), "L" in named
        return _nearest(in_year, today, step if which else None), None if which else in_year
    if name == "last month":
        return _around(_unit(values), today, step), None
    if name == "yesterday":
        day = today + int(named.get("T", step))
        return Period(day, day), None
    if name == "on Friday":
        ahead = (int(named["w"]) - date_of(today).weekday()) % 7
        coming = step == 1 or step == 0 and ("L" in named or "u" in named)
        day = today + (ahead or 7 * step if coming else ahead - 7)
        return Period(None if "u" in named else day, day), None
    count = next((int(value) for kind, value in values if kind in "129C"), 1)
    if count > 9999:
        raise ValueError("more likely another number")
    unit = _DAYS_OF[_unit(values)]
    if name == "3 weeks ago":
        day = today - int(count * unit)
        return Period(day - int(unit / 2), day + int(unit / 2)), None
    days = max(1, ceil(count * unit))
    return (Period(today, today + days) if step > 0 else Period(today - days, today)), None


def _unit(values: Values) -> str:
    return [str(value) for kind, value in values if kind in "U年月日"][-1]


def _nearest(in_year: InYear, today: int, step: int | None) -> Period:
    """Return the latest period begun by today, or the last, this or next one by ``step``."""
    year = date_of(today).year
    each = [in_year(year + offset) for offset in (1, 0, -1, -2)]
    if step == 0:
        return next((one for one in each if _first(one) <= today <= (one.last or 0)), each[1])
    if step == 1:
        return min((one for one in each if _first(one) > today), key=_first)
    end = today if step is None else today - 1
    return next(one for one in each if (_first(one) if step is None else one.last or 0) <= end)


def _first(period: Period) -> int:
    assert period.first is not None
    return period.first


def _around(unit: str, today: int, step: int) -> Period:
    """Return the calendar unit that contains today, or the one ``step`` units later."""
    day = date_of(today)
    if unit == "day":
        raise ValueError("more likely the last day of something else")
    if unit == "hour":
        return Period(today + min(step, 0), today + max(step, 0))
    if unit in {"week", "weekend"}:
        monday = today - day.weekday() + 7 * step
        return Period(monday + (5 if unit == "weekend" else 0), monday + 6)
    if unit == "year":
        return months(day.year + step, 1, 12)
    length = {"quarter": 3, "half": 6}.get(unit, 1)
    return months(day.year, (day.month - 1) // length * length + 1 + length * step, length)
