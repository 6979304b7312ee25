from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.understanding.periods import Period, date_of, one_day
from ability_search.extensions.understanding.requested_period import find_timeframe

WEDNESDAY = one_day(2026, 3, 25).first or 0


def shown(period: Period) -> str:
    first, last = (None if day is None else date_of(day) for day in (period.first, period.last))
    return f"{first or ''}..{last or ''}"


@pytest.mark.parametrize(
    ("query", "period", "removed"),
    [
        ("what happened in January 2026", "2026-01-01..2026-01-31", ["in January 2026"]),
        ("incidents 2024-05-01", "2024-05-01..2024-05-01", ["2024-05-01"]),
        ("Notizen vom 5. März", "2026-03-05..2026-03-05", ["vom 5. März"]),
        ("Termine am 1. September", "2025-09-01..2025-09-01", ["am 1. September"]),
        ("la réunion du 5 mars", "2026-03-05..2026-03-05", ["du 5 mars"]),
        ("le 1er février", "2026-02-01..2026-02-01", ["le 1er février"]),
        ("notas del 5 de marzo", "2026-03-05..2026-03-05", ["del 5 de marzo"]),
        ("Kosten im Juli", "2025-07-01..2025-07-31", ["im Juli"]),
        ("tasks due by Friday", "..2026-03-27", ["by Friday"]),
        ("last March", "2025-03-01..2025-03-31", ["last March"]),
        ("this March", "2026-03-01..2026-03-31", ["this March"]),
        ("next March", "2027-03-01..2027-03-31", ["next March"]),
        ("Q2 2026", "2026-04-01..2026-06-30", ["Q2 2026"]),
        ("between March 3 and March 7", "2026-03-03..2026-03-07", ["between March 3 and March 7"]),
        ("between January and March 2026", "2026-01-01..2026-03-31", None),
        ("between November and March 2026", "2025-11-01..2026-03-31", None),
        ("from November 2025 to February", "2025-11-01..2026-02-28", None),
        ("from March 2025 to May", "2025-03-01..2025-05-31", None),
        ("between March and May", "2025-03-01..2025-05-31", None),
        ("jan-mar 2026", "2026-01-01..2026-03-31", ["jan-mar 2026"]),
        ("Q1 or Q2 2025", "2025-01-01..2025-06-30", None),
        ("outages since last Tuesday", "2026-03-24..", ["since last Tuesday"]),
        ("before 2024", "..2023-12-31", ["before 2024"]),
        ("after March 2026", "2026-04-01..", ["after March 2026"]),
        ("until May 2024", "..2024-05-31", ["until May 2024"]),
        ("no later than 2026-04-01", "..2026-04-01", ["no later than 2026-04-01"]),
        ("from March 2026 onwards", "2026-03-01..", ["from March 2026 onwards"]),
        ("emails from March 2026", "2026-03-01..2026-03-31", ["from March 2026"]),
        ("after 2024-01-01 and before 2024-06-01", "2024-01-02..2024-05-31", None),
        ("before 2024-01-01, after 2024-06-01", "..", None),
        ("since January 2026 until March 2026", "2026-01-01..2026-03-31", None),
        ("since May 2025 compared with June 2024", "2024-06-01..", ["since May 2025", "June 2024"]),
        ("yesterday's deploys", "2026-03-24..2026-03-24", ["yesterday's"]),
        ("last week’s incidents", "2026-03-16..2026-03-22", ["last week’s"]),
        ("the last 3 weeks' incidents", "2026-03-04..2026-03-25", ["the last 3 weeks'"]),
        ("the day before yesterday", "2026-03-23..2026-03-23", ["the day before yesterday"]),
        ("this morning", "2026-03-25..2026-03-25", ["this morning"]),
        ("due tomorrow", "2026-03-26..2026-03-26", ["tomorrow"]),
        ("last week", "2026-03-16..2026-03-22", ["last week"]),
        ("this week", "2026-03-23..2026-03-29", ["this week"]),
        ("over the last weekend", "2026-03-21..2026-03-22", ["over the last weekend"]),
        ("last month", "2026-02-01..2026-02-28", ["last month"]),
        ("end of last month", "2026-02-01..2026-02-28", ["end of last month"]),
        ("this quarter", "2026-01-01..2026-03-31", ["this quarter"]),
        ("last quarter", "2025-10-01..2025-12-31", ["last quarter"]),
        ("last year", "2025-01-01..2025-12-31", ["last year"]),
        ("early this year", "2026-01-01..2026-12-31", ["early this year"]),
        ("last spring", "2025-03-01..2025-05-31", ["last spring"]),
        ("past 30 days", "2026-02-23..2026-03-25", ["past 30 days"]),
        ("past month", "2026-02-23..2026-03-25", ["past month"]),
        ("within the last couple of weeks", "2026-03-11..2026-03-25", None),
        ("in the last two quarters", "2025-09-24..2026-03-25", None),
        ("next 7 days", "2026-03-25..2026-04-01", ["next 7 days"]),
        ("the last hour", "2026-03-24..2026-03-25", ["the last hour"]),
        ("today", "2026-03-25..2026-03-25", ["today"]),
        ("3 weeks ago", "2026-03-01..2026-03-07", ["3 weeks ago"]),
        ("a year ago", "2024-09-24..2025-09-23", ["a year ago"]),
        ("letters of more than 3 weeks ago", "..2026-02-28", ["of more than 3 weeks ago"]),
        ("two days ago", "2026-03-23..2026-03-23", ["two days ago"]),
        ("on Monday", "2026-03-23..2026-03-23", ["on Monday"]),
        ("this Friday", "2026-03-27..2026-03-27", ["this Friday"]),
        ("next Wednesday", "2026-04-01..2026-04-01", ["next Wednesday"]),
        ("decided on friday afternoon", "2026-03-20..2026-03-20", ["on friday afternoon"]),
        ("the March 12 outage", "2026-03-12..2026-03-12", ["the March 12"]),
        ("dec 24", "2025-12-24..2025-12-24", ["dec 24"]),
        ("score dropped in February", "2026-02-01..2026-02-28", ["in February"]),
        ("September incidents", "2025-09-01..2025-09-30", ["September"]),
        ("mid-February outage", "2026-02-01..2026-02-28", ["mid-February"]),
        ("by end of April", "..2025-04-30", ["by end of April"]),
        ("in may", "2025-05-01..2025-05-31", ["in may"]),
        ("Q3 incidents", "2025-07-01..2025-09-30", ["Q3"]),
        ("Ernte im März 2026", "2026-03-01..2026-03-31", ["im März 2026"]),
        ("récolte du 3 avril 2025", "2025-04-03..2025-04-03", ["du 3 avril 2025"]),
        ("2025年7月14日的会议", "2025-07-14..2025-07-14", ["2025年7月14日的"]),
        ("patches of 2010 Aug 23", "2010-08-23..2010-08-23", ["of 2010 Aug 23"]),
        ("plans for April and May", "2025-04-01..2025-05-31", ["for April and May"]),
        ("Was sagte der Klempner letzte Woche?", "2026-03-16..2026-03-22", ["letzte Woche"]),
        ("Beschwerden vor drei Tagen", "2026-03-22..2026-03-22", ["vor drei Tagen"]),
        ("Gesetze vor 1990", "..1989-12-31", ["vor 1990"]),
        ("Protokolle seit Januar 2026", "2026-01-01..", ["seit Januar 2026"]),
        ("Nachrichten der letzten zehn Tage", "2026-03-15..2026-03-25", ["der letzten zehn Tage"]),
        ("guten Morgen, was war gestern", "2026-03-24..2026-03-24", ["gestern"]),
        ("les factures de la semaine dernière", "2026-03-16..2026-03-22", None),
        ("qu'est-ce qui a été décidé hier ?", "2026-03-24..2026-03-24", ["hier"]),
        ("appels il y a trois jours", "2026-03-22..2026-03-22", ["il y a trois jours"]),
        ("réunions d’aujourd’hui", "2026-03-25..2026-03-25", ["d’aujourd’hui"]),
        ("lois votées avant 2010", "..2009-12-31", ["avant 2010"]),
        ("entre janvier et mars 2026", "2026-01-01..2026-03-31", None),
        ("facturas de la semana pasada", "2026-03-16..2026-03-22", None),
        ("llamadas de hace tres días", "2026-03-22..2026-03-22", ["de hace tres días"]),
        ("gastos desde septiembre de 2025", "2025-09-01..", ["desde septiembre de 2025"]),
        ("citas para mañana", "2026-03-26..2026-03-26", ["mañana"]),
        ("昨天开会说了什么", "2026-03-24..2026-03-24", ["昨天"]),
        ("上周的发票", "2026-03-16..2026-03-22", ["上周的"]),
        ("三天前的电话", "2026-03-22..2026-03-22", ["三天前的"]),
        ("去年锅炉出了什么问题", "2025-01-01..2025-12-31", ["去年"]),
        ("2010年以前的法律", "..2009-12-31", ["2010年以前"]),
        ("最近10天的消息", "2026-03-15..2026-03-25", ["最近10天的"]),
        ("5月1日的活动", "2025-05-01..2025-05-01", ["5月1日的"]),
    ],
)
def test_the_period_of_a_query(query: str, period: str, removed: list[str] | None) -> None:
    found = find_timeframe(query, today=WEDNESDAY)
    assert found is not None
    assert shown(found.period) == period
    if removed is not None:
        assert [query[start:end] for start, end in found.spans] == removed


@pytest.mark.parametrize("day", [date(2026, 1, 15), date(2026, 3, 25), date(2026, 11, 30)])
def test_last_winter_has_ended(day: date) -> None:
    found = find_timeframe("last winter", today=one_day(day.year, day.month, day.day).first or 0)
    assert found is not None
    expected = "2024-12-01..2025-02-28" if day.month < 3 else "2025-12-01..2026-02-28"
    assert shown(found.period) == expected


def test_a_neighbouring_year_outside_the_calendar_is_not_used() -> None:
    found = find_timeframe("between March and 9999 years ago", today=WEDNESDAY)
    assert found is not None
    assert found.spans == ((0, 32),)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "spring boot configuration",
        "next spring boot release",
        "may fail when it should",
        "march of progress",
        "it should, and may fail",
        "This may raise an error",
        "they may or may not be there",
        "every 16 may be better",
        "Q4: why does it follow",
        "createDiffieHellman(2048)",
        "Patch 8.1.1543 of version 7.4.2015",
        "fall back to the default",
        "sat on the fence with sun microsystems",
        '"last week" string literal',
        "retention 30 days",
        "24-hour expiry, 15-minute tokens",
        "secrets that rotate every 30 days",
        "python 3.12 on 10.2.3.4",
        "windows server 2019 setup",
        "Visual Studio 2022 crash",
        "2048 game",
        "most recent production deployment",
        "the last incident",
        "second attempt in one hour",
        "Feb 30",
        "retry after 5 seconds",
        "before the outage",
        "was ist hier los",
        "guten Morgen",
        "por la mañana tomo café",
        "la mission sur Mars",
        "il a été très content",
        "日本的月亮",
        "多少年前",
        "changes in log_today.txt",
        f"last {'9' * 400} hours",
        f"last {'9' * 5000} hours",
    ],
)
def test_queries_without_a_time(query: str) -> None:
    assert find_timeframe(query, today=WEDNESDAY) is None


PARTS = """
    since before between and to until last next this week March may 12 2026 Q2 first half of year 3
    days ago in - , older than weeks early Friday the 0 9999 hours february 29 1001-01-01 winter
    years letzte Woche vor drei Tagen 上 周 年 前 de la semana pasada
"""
parts = st.sampled_from(PARTS.split())


@given(
    st.lists(parts, max_size=12).map(" ".join) | st.text(),
    st.dates(),
)
def test_any_query_on_any_day_has_ordered_spans(query: str, day: date) -> None:
    today = one_day(day.year, day.month, day.day).first or 0
    found = find_timeframe(query, today=today)
    if found is not None:
        ends = [0, *(end for span in found.spans for end in span), len(query)]
        assert ends == sorted(ends)
        assert all(query[start:end].strip() for start, end in found.spans)
