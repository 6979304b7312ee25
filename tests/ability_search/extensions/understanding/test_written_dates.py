from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.understanding.periods import Period, date_of, months, one_day
from ability_search.extensions.understanding.written_dates import (
    PERIODS_LIMIT,
    chunk_periods,
    written_periods,
)


def read(text: str) -> list[tuple[str, str, str]]:
    found = written_periods(text)
    return [(text[e.start : e.end], *days(e.period)) for e in found]


def days(period: Period) -> tuple[str, str]:
    assert period.first is not None
    assert period.last is not None
    return str(date_of(period.first)), str(date_of(period.last))


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-03-12", "2026-03-12", "2026-03-12"),
        ("2026/3/2", "2026-03-02", "2026-03-02"),
        ("2026.03.12", "2026-03-12", "2026-03-12"),
        ("2026-03-12T10:30:00.123Z", "2026-03-12", "2026-03-12"),
        ("12.03.2026", "2026-03-12", "2026-03-12"),
        ("03/12/2026", "2026-03-12", "2026-03-12"),
        ("13/12/2026", "2026-12-13", "2026-12-13"),
        ("03-04-2026", "2026-03-04", "2026-03-04"),
        ("12th of March 2026", "2026-03-12", "2026-03-12"),
        ("2026 Mar 12", "2026-03-12", "2026-03-12"),
        ("5. März 2026", "2026-03-05", "2026-03-05"),
        ("1er août 2025", "2025-08-01", "2025-08-01"),
        ("5 de marzo de 2026", "2026-03-05", "2026-03-05"),
        ("Dezember 2025", "2025-12-01", "2025-12-31"),
        ("juillet 2025", "2025-07-01", "2025-07-31"),
        ("juin 2025", "2025-06-01", "2025-06-30"),
        ("enero de 2026", "2026-01-01", "2026-01-31"),
        ("12-Mar-2026", "2026-03-12", "2026-03-12"),
        ("3-7 March 2026", "2026-03-03", "2026-03-07"),
        ("March 12, 2026", "2026-03-12", "2026-03-12"),
        ("MARCH 3–7, 2026", "2026-03-03", "2026-03-07"),
        ("Sept. 5, 2025", "2025-09-05", "2025-09-05"),
        ("February 2024", "2024-02-01", "2024-02-29"),
        ("January of 2000", "2000-01-01", "2000-01-31"),
        ("2026-03", "2026-03-01", "2026-03-31"),
        ("03/2026", "2026-03-01", "2026-03-31"),
        ("Q1 2026", "2026-01-01", "2026-03-31"),
        ("2026-Q3", "2026-07-01", "2026-09-30"),
        ("H2 2025", "2025-07-01", "2025-12-31"),
        ("second quarter of 2026", "2026-04-01", "2026-06-30"),
        ("first half of 2025", "2025-01-01", "2025-06-30"),
        ("last quarter of 2025", "2025-10-01", "2025-12-31"),
        ("spring 2026", "2026-03-01", "2026-05-31"),
        ("winter 2025", "2025-12-01", "2026-02-28"),
        ("1990s", "1990-01-01", "1999-12-31"),
        ("2026年3月12日", "2026-03-12", "2026-03-12"),
        ("2026年2月", "2026-02-01", "2026-02-28"),
        ("2026年", "2026-01-01", "2026-12-31"),
        ("2026-01-01 to 2026-02-28", "2026-01-01", "2026-02-28"),
        ("Jan 2025 – March 2026", "2025-01-01", "2026-03-31"),
        ("June 18, 1815", "1815-06-18", "1815-06-18"),
    ],
)
def test_a_date_within_a_sentence_is_found(text: str, first: str, last: str) -> None:
    assert read(f"It was decided ({text}) so.".replace("((", "(").replace("))", ")")) == [
        (text, first, last)
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("grew in 2023, its best", "2023"),
        ("closed since 2019-2021.", "2019-2021"),
        ("log_2026-01-15.tar.gz", "2026-01-15"),
        ("notes/2026/01/15/standup.md", "2026/01/15"),
        ("between May 2024 and June 2024", "May 2024 and June 2024"),
        ("from 2019 to 2021", "2019 to 2021"),
        ("zwischen Mai 2024 und Juni 2024", "Mai 2024 und Juni 2024"),
        ("one book (2009) of hers", "2009"),
        ("planned for mid-2026", "2026"),
        ("at the end of 2026", "2026"),
        ("in early March 2026", "March 2026"),
    ],
)
def test_words_around_a_date_are_not_part_of_it(text: str, written: str) -> None:
    assert [each[0] for each in read(text)] == [written]


@pytest.mark.parametrize(
    "text",
    [
        "upgrade to 1.20.3, then v2024.01.15 and 2024.1.3",
        "from host 10.12.2024.1 to 192.168.20.26",
        "CVE-2024-1234, SKU-2024-11, 123e4567-2024-1234-a456",
        "call 555-2024-11 or +49 2026 0312",
        "at 20:26 or 2026:03:12",
        "costs $2024 or 2,026.03",
        "more than 2000 men, up to 2000 pieces",
        "early 2000 tokens, start 2048 game",
        "in 2000 users, in 2048 MB, by 1920 px",
        "port 2049 of 2026 requests",
        "Patch 8.2.2015, version 4.1.1999, 7.4.1527 and 2026 Feb 30",
        "randomBytes(2048)",
        "the 2003-04 season",
        "on 2026-02-30 or February 30, 2026 or 2026-W60, Q7 2026 and H3 2025",
        "31.02.2026, 2026年13月1日",
        "may fail, march on, sat down, sun and second 2",
        "page 1999, item 2020",
        "",
    ],
)
def test_numbers_that_are_not_dates_are_ignored(text: str) -> None:
    assert read(text) == []


@given(st.dates(date(1000, 1, 1), date(2999, 12, 31)), st.text(max_size=20), st.text(max_size=20))
def test_every_day_is_found_in_any_text(day: date, before: str, behind: str) -> None:
    expected = one_day(day.year, day.month, day.day)
    names = "January February March April May June July August September October November December"
    name = names.split()[day.month - 1]
    for form in (day.isoformat(), f"{day.day} {name} {day.year}", f"{name} {day.day}, {day.year}"):
        text = f"{before}\n; {form}; {behind}"
        at = len(before) + 3
        assert expected in [e.period for e in written_periods(text) if e.start == at]


FRAGMENTS = """
    2026 1999 -03 -12 / . 03 March march 5th , to Q1 (2009) early in 年 月 日 and between s W11
"""
fragments = st.sampled_from([*FRAGMENTS.split(), " "])


@given(st.lists(fragments, max_size=30).map("".join) | st.text() | st.text("0123456789-/. "))
def test_any_text_gives_closed_periods_in_order(text: str) -> None:
    at = 0
    for each in written_periods(text):
        assert at <= each.start < each.end <= len(text)
        assert each.period.first is not None
        assert each.period.last is not None
        at = each.end


def test_chunk_periods_come_from_source_titles_metadata_and_content() -> None:
    found = chunk_periods(
        "journal/2026/03/12.md",
        "Standup",
        "May 2025 > 2025-05-02",
        "Moved to 2026-03-12 and not to March 2026.",
        metadata={
            "on": " 2026-01-01 ",
            "n": 3,
            "all": ["Q1 2024", 7],
            "text": f"due 2030-01-01 {'x' * 40}",
        },
    )
    assert found == [
        one_day(2026, 3, 12),
        months(2025, 5),
        one_day(2025, 5, 2),
        one_day(2026, 1, 1),
        months(2024, 1, 3),
        months(2026, 3),
    ]


def test_long_metadata_is_not_read_for_dates() -> None:
    assert chunk_periods("", metadata={"date": "4:04 pm on 20 January, 2023"}) == [
        one_day(2023, 1, 20)
    ]
    assert chunk_periods("", metadata={"note": f"20 January 2023 {'x' * 40}", "n": [1]}) == []


def test_a_chunk_without_dates_has_no_periods() -> None:
    assert chunk_periods() == []
    assert chunk_periods("a.md", "version 1.20.3") == []


def test_chunk_periods_are_limited_to_the_first_ones() -> None:
    text = ", ".join(f"{1000 + n}-01-01" for n in range(200))
    found = chunk_periods("2026-03-12", text)
    assert len(found) == PERIODS_LIMIT
    assert found[:2] == [one_day(2026, 3, 12), one_day(1000, 1, 1)]
