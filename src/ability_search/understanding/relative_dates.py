"""Periods relative to the day of the query: ``yesterday``, ``last March``, ``Q2``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import ceil
from typing import Final

from ability_search.understanding.cues import Cue
from ability_search.understanding.periods import Period, date_of, months, one_day
from ability_search.understanding.written_dates import (
    DAYS,
    FLAGS,
    FOREIGN_MONTH,
    MONTH,
    ORDINAL,
    PART,
    SEASON,
    SEASONS,
    fraction,
    month_of,
    single_periods,
    third,
)

_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "four": 4, "five": 5,
    "several": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12,
}  # fmt: skip
_DAYS_OF = {"hour": 1 / 24, "day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
_NAMED_DAYS = {"day before yesterday": -2, "yesterday": -1, "last night": -1, "tomorrow": 1}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RELATIVE_PARTS = {"earlier", "later", "so"}
_LAST = {"last", "previous", "past"}
_NEXT = {"next", "coming", "upcoming"}

_COUNT = (
    r"\d{1,4}|(?:an?\s+)?(?:few|couple(?:\s+of)?)|several|one|two|three|four|five|six|seven|eight"
    r"|nine|ten|twelve"
)
_UNIT = r"(?P<unit>hour|day|week|month|quarter|year)s?\b"
_WHICH = r"(?P<which>this|current|last|past|previous|next|coming|upcoming)"
_AT = r"(?:in|during|since|until|till|before|after|by|of|from|to|between|and|through|or|-)"
_AUXILIARY_MAY = (
    r"(?<!\bin\s)(?<!\bduring\s)(?<!\bsince\s)(?-i:may)\s+(?!(?:and|in|of|on|to)\b)[^\W\d]"
)
_SHARED_MONTH = r"(?:april|august|september|november)"
"""A month with one name in English and German."""
_ALWAYS_MONTHS = r"(?:january|february|july|september|october|november|december)"
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"


@dataclass(frozen=True, slots=True)
class Mention:
    """A period and its position in a text.

    Attributes:
        period: The period, resolved on the day of the query.
        start: Offset of its first character.
        end: Offset after its last character.
        in_year: Resolves it in a given year, if it was named without one.
    """

    period: Period
    start: int
    end: int
    in_year: Callable[[int], Period] | None = None


def mentions(text: str, *, today: int) -> list[Mention]:
    """Return all periods that ``text`` names, in order of position, without overlaps."""
    found = [Mention(each.period, each.start, each.end) for each in single_periods(text)]
    for pattern, read in _FORMS:
        for match in pattern.finditer(text):
            start, end = match.span("here")
            if any(start < other.end and other.start < end for other in found):
                continue
            try:
                found.append(replace(read(match, today), start=start, end=end))
            except ValueError:  # no such day
                continue
    return sorted(found, key=lambda mention: mention.start)


def _named_day(match: re.Match[str], today: int) -> Mention:
    day = today + _NAMED_DAYS.get(_words(match["here"]), 0)
    return _mention(Period(day, day))


def _rolling(match: re.Match[str], today: int) -> Mention:
    days = max(1, ceil(_count(match["count"]) * _DAYS_OF[match["unit"].lower()]))
    if match["which"].lower() in _NEXT:
        return _mention(Period(today, today + days))
    return _mention(Period(today - days, today))


def _ago(match: re.Match[str], today: int) -> Mention:
    unit = _DAYS_OF[match["unit"].lower()]
    day = today - int(_count(match["count"]) * unit)
    return _mention(Period(day - int(unit / 2), day + int(unit / 2)))


def _aged(match: re.Match[str], today: int) -> Mention:
    day = today - int(_count(match["count"]) * _DAYS_OF[match["unit"].lower()])
    older = match["age"].lower() in {"older", "more"}
    return _mention(Period(None, day - 1) if older else Period(day, today))


def _calendar(match: re.Match[str], today: int) -> Mention:
    which, unit = match["which"].lower(), match["unit"].lower()
    whole = _unit_around(unit, today, _step(which))
    part = _words(match["part"] or "").split(" ")[0]
    if part in {"earlier", "so"}:
        return _mention(Period(whole.first, today))
    if part == "later":
        return _mention(Period(today, whole.last))
    return _mention(third(whole, part) if part and unit in {"month", "year"} else whole)


def _to_date(match: re.Match[str], today: int) -> Mention:
    return _mention(Period(_unit_around("year", today, 0).first, today))


def _fraction(match: re.Match[str], today: int) -> Mention:
    """Return a quarter or half, of this, last or next year, or without a year."""
    words = re.findall("[a-z]+", match["fraction"].lower())
    numbers = [int(digit) for digit in re.findall(r"\d", match["fraction"])]
    if match["which"]:
        year = date_of(today).year + _step(match["which"].lower())
        return _mention(fraction(year, words, numbers))
    return _yearless(lambda year: fraction(year, words, numbers), today, None)


def _month(match: re.Match[str], today: int) -> Mention:
    month = month_of(match["month"].lower())
    part = _words(match["part"] or "").split(" ")[0]

    def in_year(year: int) -> Period:
        whole = months(year, month)
        return third(whole, part) if part and part not in _RELATIVE_PARTS else whole

    return _yearless(in_year, today, match["which"])


def _day(match: re.Match[str], today: int) -> Mention:
    month = month_of((match["before"] or match["behind"]).lower())
    days = [int(day) for day in re.findall(r"\d+", match["here"])]

    def in_year(year: int) -> Period:
        return one_day(year, month, days[0]).to(one_day(year, month, days[-1]))

    return _yearless(in_year, today, None)


def _season(match: re.Match[str], today: int) -> Mention:
    month = SEASONS[match["season"].lower()]
    return _yearless(lambda year: months(year, month, 3), today, match["which"])


def _weekday(match: re.Match[str], today: int) -> Mention:
    wanted = _WEEKDAYS.index(match["weekday"].lower()[:3])
    ahead = (wanted - date_of(today).weekday()) % 7
    which = (match["which"] or "").lower()
    if which in _NEXT:
        day = today + (ahead or 7)
    elif which in {"this", "current"} or match["due"]:
        day = today + ahead
    else:
        day = today + ahead - 7
    return _mention(Period(day, day))


def _week(match: re.Match[str], today: int) -> Mention:
    def in_year(year: int) -> Period:
        monday = date.fromisocalendar(year, int(match["number"]), 1)
        return one_day(monday.year, monday.month, monday.day).to(
            one_day(*(monday + timedelta(days=6)).timetuple()[:3])
        )

    return _yearless(in_year, today, None)


def _upcoming(_match: re.Match[str], today: int) -> Mention:
    return _mention(Period(today, None))


def _year(match: re.Match[str], today: int) -> Mention:
    year = int(match["here"])
    if not 1990 <= year <= date_of(today).year + 2:
        raise ValueError("more likely a number")
    return _mention(months(year, 1, 12))


def _yearless(in_year: Callable[[int], Period], today: int, which: str | None) -> Mention:
    """Return the latest period begun by today; with ``last`` ended, with ``next`` not yet begun."""
    year = date_of(today).year
    each = [in_year(year + offset) for offset in (1, 0, -1, -2)]
    word = (which or "").lower()
    if word in _NEXT:
        chosen = min((one for one in each if _first(one) > today), key=_first)
    elif word in {"this", "current"}:
        chosen = each[1]
    elif word in _LAST:
        chosen = next(one for one in each if one.last is not None and one.last < today)
    else:
        chosen = next(one for one in each if _first(one) <= today)
    return Mention(chosen, 0, 0, None if which else in_year)


def _unit_around(unit: str, today: int, step: int) -> Period:
    """Return the calendar unit that contains today, or the one ``step`` units later."""
    day = date_of(today)
    if unit in {"week", "weekend"}:
        monday = today - day.weekday() + 7 * step
        return Period(monday + (5 if unit == "weekend" else 0), monday + 6)
    if unit == "month":
        return months(day.year, day.month + step)
    if unit == "quarter":
        return months(day.year, (day.month - 1) // 3 * 3 + 1 + 3 * step, 3)
    return months(day.year + step, 1, 12)


def _first(period: Period) -> int:
    assert period.first is not None
    return period.first


def _step(which: str) -> int:
    return -1 if which in _LAST else 1 if which in _NEXT else 0


def _count(text: str) -> int:
    word = _words(text).removeprefix("a ").removesuffix(" of") or "a"
    return int(word) if word.isdigit() else _NUMBERS[word]


def _words(text: str) -> str:
    return " ".join(text.lower().replace("-", " ").split())


def _mention(period: Period) -> Mention:
    return Mention(period, 0, 0)


Reader = Callable[[re.Match[str], int], Mention]
"""Resolves a match on the day of the query; raises ValueError if there is no such day."""

_PART = rf"(?:(?P<part>{PART}|earlier|later|so\s+far)[\s-]+(?:in\s+)?(?:the\s+)?)?"
FORMS: Final[tuple[tuple[Cue, Reader], ...]] = (
    (
        Cue(
            r"\b(?P<here>day before yesterday|yesterday|tomorrow|last night|today|tonight"
            r"|this (?:morning|afternoon|evening))\b(?!-)",
            "deploys of yesterday",
            "the yesterday-button",
        ),
        _named_day,
    ),
    (
        Cue(
            rf"\b(?P<here>{_WHICH}[\s-]+(?P<count>{_COUNT})[\s-]+{_UNIT})",
            "past 30 days",
            "past 30 requests",
        ),
        _rolling,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<which>past|last(?=\s+hour))\s+(?P<count>){_UNIT})",
            "the past month",
            "the past tense",
        ),
        _rolling,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<count>{_COUNT}|an?)\s+{_UNIT}\s+ago)\b",
            "3 weeks ago",
            "3 weeks of work",
        ),
        _ago,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<age>older|newer|younger|more|less)\s+than\s+(?P<count>{_COUNT}|an?)"
            rf"\s+{_UNIT}(?:\s+(?:old|ago))?)\b",
            "notes older than 3 weeks",
            "notes older than 3 versions",
        ),
        _aged,
    ),
    (
        Cue(r"\b(?P<here>year[\s-]to[\s-]date|ytd)\b", "year to date revenue", "add a year to it"),
        _to_date,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<fraction>{ORDINAL}\s+(?:quarter|half)|[QH][1-4])"
            rf"\s+(?:of\s+)?(?:the\s+)?{_WHICH}\s+year)\b",
            "second half of this year",
            "second half of the file",
        ),
        _fraction,
    ),
    (
        Cue(
            rf"\b(?P<here>{_PART}{_WHICH}\s+(?P<unit>week(?:end)?|month|quarter|year))\b(?!-)",
            "end of last month",
            "end of this list",
        ),
        _calendar,
    ),
    (
        Cue(
            r"\b(?:by|until|till|since)\s+the\s+(?P<here>(?P<part>(?:beginning|start|middle|end)\s+of)"
            r"\s+the\s+(?P<which>)(?P<unit>month|year))\b(?!-)",
            "goals by the end of the year",
            "closing the books at the end of the year",
        ),
        _calendar,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<fraction>(?-i:[QH])[1-4]|{ORDINAL}\s+quarter)(?P<which>)"
            r"(?:\s+of\s+the\s+year)?)\b(?![-':]|\.\s+\w)",
            "revenue in Q2",
            "Q2: what is a monad",
        ),
        _fraction,
    ),
    (
        Cue(
            rf"(?<![\w.:/-])(?P<here>(?P<before>{MONTH})\.?\s+{DAYS}|{DAYS}(?:\s+of)?\s+"
            rf"(?P<behind>{MONTH}))\b(?![%:/]|[.,]\d|-\w|\s+(?:be|not|have)\b)",
            "notes of 2 May",
            "2 may be enough",
        ),
        _day,
    ),
    (
        Cue(
            rf"(?<![\w.:/-])(?P<here>(?P<before>){DAYS}(?:\.\s*|\s+de\s+|\s+(?!mars\b|mayo\b))"
            rf"(?P<behind>{FOREIGN_MONTH}))\b(?!-\w)",
            "Notizen vom 5. März",
            "5 marzipan cakes",
        ),
        _day,
    ),
    (
        Cue(
            rf"\b(?:du|le|au)\s+(?P<here>(?P<before>){DAYS}\s+(?P<behind>(?-i:mars)))\b(?!-\w)",
            "la réunion du 5 mars",
            "5 mars rovers",
        ),
        _day,
    ),
    (
        Cue(
            rf"\b(?:am|vom|zum|bis|seit)\s+(?P<here>(?P<before>){DAYS}\.\s*(?P<behind>{_SHARED_MONTH}))"
            r"\b(?!-\w)",
            "Notizen vom 5. April",
            "see chapter 5. April follows",
        ),
        _day,
    ),
    (
        Cue(
            rf"\b(?P<here>{_PART}{_WHICH}\s+(?!{_AUXILIARY_MAY})(?P<month>{MONTH}))\b(?!-)",
            "costs last May",
            "the last may fail",
        ),
        _month,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<part>{PART})[\s-]+(?P<which>)(?P<month>{MONTH}))\b(?!-)",
            "early March",
            "early warning",
        ),
        _month,
    ),
    (
        Cue(
            rf"\b(?!may\s+or\s+may\b)(?P<here>(?P<part>)(?P<which>)(?P<month>{MONTH}))"
            rf"(?=(?:\s?[-–]\s?|\s+(?:to|and|or|until|through)\s+){MONTH}\b)",
            "May to June",
            "it may or may not",
        ),
        _month,
    ),
    (
        Cue(
            rf"(?:(?<=\s)|(?<=^))(?:{_AT}\s+|(?<=[–-]))(?:the\s+)?"
            rf"(?P<here>(?P<part>)(?P<which>)(?!{_AUXILIARY_MAY})(?P<month>{MONTH}))\b"
            r"(?!-\w|\s+(?:be|not|have)\b)",
            "visits in May",
            "what may be in it",
        ),
        _month,
    ),
    (
        Cue(
            rf"\b(?:im|en)\s+(?P<here>(?P<part>)(?P<which>)(?P<month>{FOREIGN_MONTH}|{_SHARED_MONTH}))"
            r"\b(?!-\w)",
            "Kosten im März",
            "ein Abend im Mai-Tai",
        ),
        _month,
    ),
    (
        Cue(
            rf"\b(?P<here>(?P<part>)(?P<which>)(?P<month>{_ALWAYS_MONTHS}))\b(?!-\w)",
            "October invoices",
            "the october-cms",
        ),
        _month,
    ),
    (
        Cue(
            rf"\b(?P<here>{_WHICH}\s+(?P<season>{SEASON}))\b"
            r"(?!-|\s+(?:boot|framework|security|data|cloud|mvc|bean)\b)",
            "last spring",
            "last spring boot release",
        ),
        _season,
    ),
    (
        Cue(
            rf"\b(?:(?:on|since|before|after|(?P<due>until|till|by))\s+(?P<here>(?P<weekday>{_WEEKDAY})"
            r"(?P<which>)(?:\s+(?:morning|afternoon|evening|night))?))\b(?!-)",
            "closed on Tuesday",
            "the sun on its own",
        ),
        _weekday,
    ),
    (
        Cue(
            rf"(?P<due>)\b(?P<here>{_WHICH}\s+(?P<weekday>{_WEEKDAY})"
            r"(?:\s+(?:morning|afternoon|evening|night))?)\b(?!-)",
            "last Tuesday evening",
            "every Tuesday evening",
        ),
        _weekday,
    ),
    (
        Cue(
            r"\b(?P<here>(?:(?:(?:calendar\s+)?week|kalenderwoche|semaine|semana)\s+|(?-i:KW)\s?)"
            r"(?P<number>[1-9]\d?))\b(?![-.:%/]|\s+(?:of|de|del|der)\s+(?!the\s+year))",
            "deploys of week 12",
            "week 12 of pregnancy",
        ),
        _week,
    ),
    (
        Cue(r"\b(?P<here>upcoming)\b(?!-)", "upcoming releases", "the upcoming-events box"),
        _upcoming,
    ),
    (Cue(r"^\s*(?P<here>(?:19|20)\d\d)\s+(?=[a-z])", "2026 budget", "the 2026 budget"), _year),
)
"""Relative dates in order of precedence, and the functions that read them."""

_FORMS = tuple((re.compile(cue.pattern, FLAGS), read) for cue, read in FORMS)
