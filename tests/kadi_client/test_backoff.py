from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kadi_client.backoff import Backoff, retry_after

DAY = 24 * 3600


def ceilings(backoff: Backoff, lives: list[float]) -> list[float]:
    return [backoff.delay(lived) for lived in lives]


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    backoff = Backoff(base=1.0, cap=5.0, uniform=lambda _low, high: high)
    assert ceilings(backoff, [0.0] * 5) == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_stable_connection_starts_anew_and_an_unstable_one_does_not() -> None:
    backoff = Backoff(base=1.0, cap=100.0, stable=60.0, uniform=lambda _low, high: high)
    assert ceilings(backoff, [0.0, 59.0, 60.0, 1.0]) == [1.0, 2.0, 1.0, 2.0]


def test_any_number_of_attempts_is_survived() -> None:
    backoff = Backoff(uniform=lambda _low, high: high)
    assert ceilings(backoff, [0.0] * 5000)[-1] == 30.0


def test_delays_are_spread_from_zero() -> None:
    backoff = Backoff(uniform=lambda low, _high: low)
    assert backoff.delay(0.0) == 0.0
    assert all(0.0 <= Backoff(base=2.0).delay(0.0) <= 2.0 for _ in range(50))


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after({"retry-after": "0"}) == 0
    assert retry_after({"retry-after": " 120 "}) == 120
    soon = datetime.now(UTC) + timedelta(seconds=1000)
    for zone in (" GMT", " -0000", ""):
        date = format_datetime(soon).removesuffix(" +0000") + zone
        assert retry_after({"retry-after": date}) == pytest.approx(1000, abs=30)
    assert retry_after({"retry-after": format_datetime(datetime.fromtimestamp(0, UTC))}) == 0
    assert retry_after({}) is None


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "²", "٣"])
def test_retry_after_that_is_neither_is_none(value: str) -> None:
    assert retry_after({"retry-after": value}) is None


@pytest.mark.parametrize("value", ["9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_is_a_day_at_most(value: str) -> None:
    assert retry_after({"retry-after": value}) == DAY
