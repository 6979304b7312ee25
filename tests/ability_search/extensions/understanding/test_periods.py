import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.understanding.periods import (
    YEARS_LIMIT,
    Period,
    buckets,
    buckets_of_query,
    date_of,
    day_of,
    from_numbers,
    iso_day,
    months,
    one_day,
    to_numbers,
)

DAY_MS = 86_400_000


def test_days_are_counted_from_1970() -> None:
    assert one_day(1970, 1, 1) == Period(0, 0)
    assert one_day(1969, 12, 31) == Period(-1, -1)
    assert (day_of(-1), day_of(0), day_of(DAY_MS - 1), day_of(DAY_MS)) == (-1, 0, 0, 1)
    assert date_of(0).isoformat() == iso_day(0) == "1970-01-01"
    assert (iso_day(-(10**6)), iso_day(10**7)) == ("0001-01-01", "9999-12-31")


def test_a_period_that_ends_before_it_begins_is_rejected() -> None:
    with pytest.raises(ValueError, match="before it begins"):
        Period(1, 0)


def test_months_continue_in_the_next_year() -> None:
    assert months(2026, 13) == months(2027, 1)
    assert months(2026, 0, 2) == months(2025, 12).to(months(2026, 1))


def test_the_span_of_two_periods_in_either_order() -> None:
    assert Period(1, 2).to(Period(5, 6)) == Period(1, 6)
    assert Period(5, 6).to(Period(1, 2)) == Period(1, 6)
    assert Period(None, 2).to(Period(5, None)) == Period(None, None)


def test_chunks_have_keys_of_their_months_and_years() -> None:
    assert buckets([one_day(2026, 3, 12), months(2026, 3), one_day(2025, 1, 1)]) == [
        "2025", "2025-01", "2026", "2026-03",
    ]  # fmt: skip
    assert buckets([months(2026, 1, 12)]) == ["2026"]
    assert buckets([Period(None, 3), Period(3, None)]) == []
    assert len(buckets([months(1000, 1, 12 * 500)])) == YEARS_LIMIT


def test_queries_have_keys_of_the_months_in_and_near_the_period() -> None:
    assert buckets_of_query(months(2026, 3)) == ["2026-02", "2026-03", "2026-04"]
    assert buckets_of_query(one_day(2026, 3, 16)) == ["2026-03"]
    assert buckets_of_query(months(2025, 1, 12)) == ["2025"]
    assert buckets_of_query(Period(None, None)) == []
    assert buckets_of_query(Period(0, None))[:2] == ["1970", "1971"]
    assert buckets_of_query(Period(None, 0))[-2:] == ["1969", "1970"]


ends = st.integers(-700_000, 2_900_000)
short = st.tuples(ends, st.integers(0, 240)).map(lambda pair: Period(pair[0], pair[0] + pair[1]))


@given(short, st.tuples(ends, st.integers(0, 5000)))
def test_a_chunk_in_the_period_shares_a_key(chunk: Period, asked: tuple[int, int]) -> None:
    assert chunk.first is not None
    query = Period(chunk.first - asked[1] // 2, chunk.first + asked[1])
    assert set(buckets([chunk])) & set(buckets_of_query(query))
    assert len(buckets_of_query(query)) <= YEARS_LIMIT


@given(st.one_of(st.none(), ends), st.one_of(st.none(), st.integers(0, 3_000_000)))
def test_the_number_of_keys_of_a_query_is_bounded(first: int | None, width: int | None) -> None:
    last = None if width is None else (first or 0) + width
    assert len(buckets_of_query(Period(first, last))) <= YEARS_LIMIT


@given(st.lists(st.tuples(st.integers(), st.integers(0, 9)).map(lambda p: Period(p[0], sum(p)))))
def test_numbers_round_trip(periods: list[Period]) -> None:
    assert from_numbers(to_numbers(periods)) == periods


def test_open_periods_are_not_encoded() -> None:
    assert to_numbers([Period(None, 1), Period(1, None), Period(2, 3)]) == [2, 3]


@pytest.mark.parametrize("numbers", [[1], [2, 1]])
def test_invalid_numbers_are_rejected(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match=r"shorter|before it begins"):
        from_numbers(numbers)
