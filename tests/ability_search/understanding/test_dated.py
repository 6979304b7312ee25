import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.understanding.chunk_dates import (
    PERIODS_LIMIT,
    chunk_periods,
    from_numbers,
    to_numbers,
)
from ability_search.understanding.periods import Period, months, one_day


def test_the_periods_of_a_chunk_come_from_all_that_is_written_of_it() -> None:
    found = chunk_periods(
        "journal/2026/03/12.md",
        "Standup",
        "May 2025 > 2025-05-02",
        "Moved to 2026-03-12 and not to March 2026.",
        metadata={"on": " 2026-01-01 ", "n": 3, "all": ["Q1 2024", 7], "text": "due 2030-01-01"},
    )
    assert found == [
        one_day(2026, 3, 12),
        months(2025, 5),
        one_day(2025, 5, 2),
        one_day(2026, 1, 1),
        months(2024, 1, 3),
        months(2026, 3),
    ]


def test_a_chunk_without_dates_has_none() -> None:
    assert chunk_periods() == []
    assert chunk_periods("a.md", "version 1.20.3") == []


def test_only_so_many_are_kept_and_the_first_ones() -> None:
    text = ", ".join(f"{1000 + n}-01-01" for n in range(200))
    found = chunk_periods("2026-03-12", text)
    assert len(found) == PERIODS_LIMIT
    assert found[:2] == [one_day(2026, 3, 12), one_day(1000, 1, 1)]


@given(st.lists(st.tuples(st.integers(), st.integers(0, 9)).map(lambda p: Period(p[0], sum(p)))))
def test_numbers_and_back(periods: list[Period]) -> None:
    assert from_numbers(to_numbers(periods)) == periods


def test_open_periods_are_not_written() -> None:
    assert to_numbers([Period(None, 1), Period(1, None), Period(2, 3)]) == [2, 3]


@pytest.mark.parametrize("numbers", [[1], [2, 1]])
def test_other_numbers_are_refused(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match=r"shorter|before it begins"):
        from_numbers(numbers)
