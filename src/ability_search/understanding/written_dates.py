"""Dates in a text, each with its year: ``2026-03-12``, ``Q1 2026``.

========================================  ========================================================
``2026-03-12``, ``2026/3/2``              also with a time; ``2026.03.12`` with two digits only
``12.03.2026``                            day first, years from 1800 on
``03/12/2026``, ``03-12-2026``            month first unless that month does not exist
``12th of March 2026``, ``3-7 Mar 2026``  also ``March 12, 2026``, ``March 3-7, 2026``
``5. März 2026``, ``5 de marzo de 2026``  also in French, and ``août 2026``
``2026 Mar 12``                           also ``2026-Mar-12``
``March 2026``, ``2026-03``, ``03/2026``  also ``early``, ``mid``, ``late``, ``end of``: its thirds
``Q1 2026``, ``H2 2025``, ``2026-W11``    also ``second quarter of 2026``, ``week 11 of 2026``
``spring 2026``                           northern, whole months; winter begins in December
``early 2026``                            January to April; ``mid``: to August; ``late``: the rest
``in 2026``, ``(2026)``, ``1990s``        a bare year only if a word marks it as one
``2026年3月12日``                         the Chinese and Japanese form
========================================  ========================================================

Versions, addresses, identifiers, telephone numbers, times and amounts are not dates. Two dates
joined by ``to``, ``until``, ``through`` or a dash, or by ``between`` and ``and``, are one period
from the first to the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from ability_search.understanding.cues import Cue
from ability_search.understanding.periods import Period, date_of, months, one_day

MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
DAY: Final = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th|er)?"
FOREIGN_MONTH: Final = (
    r"(?:januar|j[aä]nner|februar|märz|mai|juni|juli|oktober|dezember"
    r"|janvier|février|(?-i:mars)|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre)"
)
"""A month in German, French or Spanish; ``Mars`` is a planet."""
_MONTH = rf"(?:{MONTH}|{FOREIGN_MONTH})"
DAYS: Final = rf"{DAY}(?:\s?(?:-|–|to)\s?{DAY})?"
SEASON: Final = r"(?:spring|summer|autumn|fall|winter)"
PART: Final = r"(?:early|mid|middle\s+of|late|beginning\s+of|start\s+of|end\s+of)"
ORDINAL: Final = r"(?:first|second|third|fourth|last|final|1st|2nd|3rd|4th)"

_YEAR = r"[12]\d{3}"
_END = r"(?![\w%]|[.,:/-]\d)"
_UNITS = r"\s?(?:ms|px|[kmgt]i?b|hz|x|bytes|tokens|words|users|people|requests|rows|items|times)\b"
Reader = Callable[[list[int], list[str]], Period]
"""Resolves the numbers and the words of a written date; raises ValueError for an invalid date."""

PERIODS_LIMIT: Final = 64
_MAX_DATE_LENGTH = 40
"""Maximum length of a metadata value that is tried as a date, in characters."""
FLAGS: Final = re.IGNORECASE | re.ASCII
_ANCHOR = re.compile(r"(?<!\d)[12]\d{3}(?!\d)", re.ASCII)
_HINT = re.compile(r"[^\W\d_]|[-/.(]")
"""Characters that occur near every date besides digits, but not in columns of numbers."""
_BEFORE, _BEHIND = 48, 48
"""Range of a date in characters, before and after the first digit of its year."""
_LEADING = re.compile(r"(?:in|since|during|until|till|before|after|by|from)\s+", FLAGS)
_CONNECTOR = re.compile(r"\s*(?:-|–|—|\bto\b|\buntil\b|\btill\b|\bthrough\b|\bthru\b)\s*", FLAGS)
_BETWEEN = re.compile(r"\bbetween\s+(?:the\s+)?$", FLAGS)
_AND = re.compile(r"\s+and\s+(?:the\s+)?", FLAGS)
_TIME_OF_DAY = re.compile(
    r"(?:\s|,|\b(?:at|on)\b|T?\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?+\s?(?:[ap]m\b|Z|UTC|[+-]\d\d:?\d\d)?)*+",
    FLAGS,
)
"""Text that may stand beside a date in metadata."""
_TOKEN = re.compile(r"(\d+)(?:st|nd|rd|th|er)?|([a-zà-ÿ]+)")

_MONTHS = {
    name: index + 1
    for index, names in enumerate(
        (
            "jan jän ene",
            "feb fév",
            "mar mär",
            "apr avr abr",
            "may mai",
            "jun juin",
            "jul juil",
            "aug aoû ago",
            "sep",
            "oct okt",
            "nov",
            "dec dez déc dic",
        )
    )
    for name in names.split()
}
SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_THIRDS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4}


@dataclass(frozen=True, slots=True)
class Written:
    """A period and its position in a text, in characters."""

    period: Period
    start: int
    end: int


def written_periods(text: str, *, limit: int | None = None) -> list[Written]:
    """Return the periods that ``text`` names, in order, at most ``limit`` of them.

    Linear in the length of the text; a text without any year costs one scan for four digits.
    """
    found: list[Written] = []
    for each in single_periods(text):
        before = found[-1] if found else None
        if before is not None and _joined(text, before, each):
            found[-1] = Written(before.period.to(each.period), before.start, each.end)
        elif len(found) == limit:
            break
        else:
            found.append(each)
    return found


def single_periods(text: str) -> Iterator[Written]:
    """Yield the periods that ``text`` names, in order, without joining two into a longer one."""
    done = 0
    for anchor in _ANCHOR.finditer(text):
        if anchor.start() < done:
            continue
        near = max(done, anchor.start() - _BEFORE)
        done = anchor.end()
        if not _HINT.search(text, near, done + 2):
            continue
        for match in _SCAN.finditer(text, near, anchor.start() + _BEHIND):
            if match.start() > anchor.start():
                break
            done = max(done, match.end())
            if (period := _read(match)) is not None:
                leading = _LEADING.match(text, match.start(), match.end())
                yield Written(period, leading.end() if leading else match.start(), match.end())


def chunk_periods(
    *texts: str, metadata: Mapping[str, Any] | None = None, limit: int = PERIODS_LIMIT
) -> list[Period]:
    """Return the periods that a chunk is about.

    Args:
        texts: Texts of the chunk, most informative first: source, title, headings, content.
        metadata: Strings in it that consist of a single date are read too, also in lists and with a
            time of day: ``4:04 pm on 20 January, 2023``.
        limit: Maximum number of periods; the first ones found are returned.

    Returns:
        Without duplicates, each closed at both ends; empty for a chunk without dates.
    """
    found: dict[Period, None] = {}
    for text in _texts(texts, metadata or {}):
        for each in written_periods(text, limit=limit):
            found[each.period] = None
            if len(found) == limit:
                return list(found)
    return list(found)


def _texts(texts: Sequence[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts in order, metadata dates before the last text, which is the content."""
    yield from texts[:-1]
    for value in metadata.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, str) and len(item) <= _MAX_DATE_LENGTH and _is_date(item):
                yield item
    yield from texts[-1:]


def _is_date(text: str) -> bool:
    found = written_periods(text)
    if len(found) != 1:
        return False
    around = (text[: found[0].start], text[found[0].end :])
    return all(_TIME_OF_DAY.fullmatch(each) for each in around)


def month_of(name: str) -> int:
    """Return the number of a month from its name or abbreviation, in lower case."""
    return _MONTHS[name[:4] if name.startswith("jui") else name[:3]]


def third(period: Period, part: str) -> Period:
    """Return the ``early``, ``mid`` or ``late`` third of a month or of a year.

    Thirds of a year are whole months.
    """
    assert period.first is not None
    assert period.last is not None
    index = _THIRDS[part]
    length = period.last - period.first + 1
    if length > 300:
        year = date_of(period.first).year
        return months(year, 1 + 4 * index, 4)
    first = period.first + 10 * index
    return Period(first, period.last if index == 2 else first + 9)


def fraction(year: int, words: list[str], numbers: list[int]) -> Period:
    """Return the quarter or half of ``year`` named by tokens such as ``q``, ``3``.

    Raises:
        ValueError: if the year has no such part.
    """
    parts = 2 if {"h", "half"} & set(words) else 4
    named = [_ORDINALS[word] for word in words if word in _ORDINALS]
    number = (numbers or named or [parts])[0]
    if not 1 <= number <= parts:
        raise ValueError("no such part of a year")
    length = 12 // parts
    return months(year, 1 + length * (number - 1), length)


def _joined(text: str, before: Written, after: Written) -> bool:
    if _CONNECTOR.fullmatch(text, before.end, after.start):
        return True
    return bool(
        _AND.fullmatch(text, before.end, after.start)
        and _BETWEEN.search(text, max(0, before.start - 20), before.start)
    )


def _read(match: re.Match[str]) -> Period | None:
    """Return the period of a match; ``None`` if the calendar has no such day."""
    tokens = _TOKEN.findall(match[0].lower())
    numbers = [int(number) for number, _ in tokens if number]
    words = [word for _, word in tokens if word]
    try:
        return FORMS[match.lastgroup or ""][1](numbers, words)
    except ValueError:
        return None


def _iso_day(numbers: list[int], words: list[str]) -> Period:
    return one_day(*numbers[:3])


def _week(numbers: list[int], words: list[str]) -> Period:
    monday = date.fromisocalendar(max(numbers), min(numbers), 1)
    first = one_day(monday.year, monday.month, monday.day)
    assert first.first is not None
    return Period(first.first, first.first + 6)


def _cjk(numbers: list[int], words: list[str]) -> Period:
    if len(numbers) > 2:
        return one_day(*numbers[:3])
    if len(numbers) > 1:
        return months(date(numbers[0], numbers[1], 1).year, numbers[1])
    return months(numbers[0], 1, 12)


def _day_first(numbers: list[int], words: list[str]) -> Period:
    day, month, year = numbers
    return one_day(year, month, day)


def _month_first(numbers: list[int], words: list[str]) -> Period:
    month, day, year = numbers
    return one_day(year, day, month) if month > 12 else one_day(year, month, day)


def _year_first(numbers: list[int], words: list[str]) -> Period:
    year, day = numbers
    return one_day(year, month_of(words[0]), day)


def _days_of_month(numbers: list[int], words: list[str]) -> Period:
    *days, year = numbers
    month = next(month_of(word) for word in words if word[:3] in _MONTHS or word[:3] == "jui")
    return one_day(year, month, days[0]).to(one_day(year, month, days[-1]))


def _month(numbers: list[int], words: list[str]) -> Period:
    whole = months(numbers[-1], month_of(words[-2] if words[-1] in {"de", "of"} else words[-1]))
    return third(whole, words[0]) if words[0] in _THIRDS else whole


def _month_number(numbers: list[int], words: list[str]) -> Period:
    return months(max(numbers), min(numbers))


def _fraction(numbers: list[int], words: list[str]) -> Period:
    year = max(numbers)
    return fraction(year, words, [number for number in numbers if number != year])


def _season(numbers: list[int], words: list[str]) -> Period:
    return months(numbers[0], SEASONS[words[0]], 3)


def _part(numbers: list[int], words: list[str]) -> Period:
    return third(months(numbers[0], 1, 12), words[0])


def _decade(numbers: list[int], words: list[str]) -> Period:
    return months(numbers[0], 1, 120)


def _year(numbers: list[int], words: list[str]) -> Period:
    return months(numbers[0], 1, 12).to(months(numbers[-1], 1, 12))


FORMS: Final[Mapping[str, tuple[Cue, Reader]]] = {
    "iso_day": (
        Cue(
            rf"(?<![^\W_])(?<![.:])(?<!\d[-/]){_YEAR}"
            r"(?:-\d\d?-\d\d?|/\d\d?/\d\d?|\.\d\d\.\d\d)(?!\d|\.\d)"
            r"(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?Z|[+-]\d\d:?\d\d)?)?",
            "deployed 2026-03-12T10:30Z",
            "order 2026-03-125 shipped",
        ),
        _iso_day,
    ),
    "week": (
        Cue(
            rf"(?<![\w-])(?:{_YEAR}-?W\d\d(?![\w-])|week\s+\d\d?,?\s+(?:of\s+)?{_YEAR}{_END})",
            "2026-W11",
            "part 2026-W115",
        ),
        _week,
    ),
    "cjk": (
        Cue(
            rf"(?<!\d){_YEAR}\s?年(?:\s?\d\d?\s?月(?:\s?\d\d?\s?[日号])?)?",
            "2026年3月12日",
            "2026年13月",
        ),
        _cjk,
    ),
    "day_first": (
        Cue(
            r"(?<![\w./-])(?<!patch\s)(?<!version\s)(?<!release\s)"
            rf"\d\d?\.\s?\d\d?\.\s?(?:1[89]|20)\d\d{_END}",
            "12.03.2026",
            "version 12.03.2026",
        ),
        _day_first,
    ),
    "month_first": (
        Cue(
            rf"(?<![\w./-])\d\d?(?:/\d\d?/|-\d\d?-){_YEAR}{_END}",
            "03/12/2026",
            "files/03/12/2026",
        ),
        _month_first,
    ),
    "year_first": (
        Cue(
            rf"(?<![\w./:-]){_YEAR}[\s-]+{MONTH}\.?[\s-]+{DAY}{_END}",
            "on 2026 Mar 12",
            "on 2026 Mars 12",
        ),
        _year_first,
    ),
    "days_month": (
        Cue(
            rf"(?<![\w.:/-]){DAYS}(?:\s+of|\s+de|\.)?[\s-]*{_MONTH}\.?,?(?:\s+de)?[\s-]*{_YEAR}"
            rf"{_END}",
            "3-7 March 2026",
            "31 February 2026",
        ),
        _days_of_month,
    ),
    "month_days": (
        Cue(
            rf"\b{MONTH}\.?\s*{DAYS},?\s+{_YEAR}{_END}",
            "March 12th, 2026",
            "February 31, 2026",
        ),
        _days_of_month,
    ),
    "month": (
        Cue(
            rf"\b(?:{PART}[\s-]+)?{_MONTH}\.?,?[\s-]+(?:(?:de|of)\s+)?{_YEAR}{_END}",
            "late March 2026",
            "part March 2026-1234",
        ),
        _month,
    ),
    "month_number": (
        Cue(
            rf"(?<![\w./-])(?:{_YEAR}-(?:0[1-9]|1[0-2])|(?:0?[1-9]|1[0-2])/{_YEAR}){_END}"
            r"(?!-|\s+season)",
            "2026-03",
            "the 2026-03 season",
        ),
        _month_number,
    ),
    "fraction": (
        Cue(
            rf"\b(?:[QH][1-4][\s/-]?(?:of\s+)?(?:FY\s?)?{_YEAR}{_END}"
            rf"|{_YEAR}[\s/-]?[QH][1-4]\b"
            rf"|{ORDINAL}\s+(?:quarter|half)\s+(?:of\s+)?{_YEAR}{_END})",
            "Q1 2026",
            "H3 2026",
        ),
        _fraction,
    ),
    "season": (
        Cue(rf"\b{SEASON}\s+(?:of\s+)?{_YEAR}{_END}", "spring 2026", "spring 2026.1"),
        _season,
    ),
    "part": (
        Cue(
            rf"\b{PART}[\s-]+(?:19|20)\d\d{_END}(?!{_UNITS})",
            "early 2026",
            "early 2000 tokens",
        ),
        _part,
    ),
    "decade": (Cue(r"(?<![\w.-])(?:1[89]|20)\d0s\b", "1990s", "v1990s"), _decade),
    "year": (
        Cue(
            r"(?:\b(?:in|since|during|until|till|before|after|by|from|year)\s+"
            rf"(?:19|20)\d\d(?:\s?[-–]\s?(?:19|20)\d\d)?{_END}(?!{_UNITS})|(?<!\w)\((?:19|20)\d\d\))",
            "in 2026",
            "in 2000 ms",
        ),
        _year,
    ),
}
"""Written dates by name, in order of precedence, and the functions that read them."""

_SCAN = re.compile(
    "|".join(f"(?P<{name}>{cue.pattern})" for name, (cue, _) in FORMS.items()), FLAGS
)
