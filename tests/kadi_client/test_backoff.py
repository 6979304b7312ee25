from __future__ import annotations

from kadi_client.backoff import Backoff


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
