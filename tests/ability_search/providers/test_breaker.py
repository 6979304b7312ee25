from __future__ import annotations

import pytest

from ability_search.providers.model_calls import CircuitBreaker


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_breaker_opens_lets_one_probe_through_and_closes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(limit=3, reset=30, clock=clock)
    for _ in range(3):
        assert breaker.wait() == 0
        breaker.failed()
    assert breaker.wait() == pytest.approx(30)
    clock.now += 29
    assert breaker.wait() == pytest.approx(1)
    clock.now += 2
    assert breaker.wait() == 0
    assert breaker.wait() == pytest.approx(30)
    breaker.failed()
    assert breaker.failures == 4
    clock.now += 31
    assert breaker.wait() == 0
    breaker.succeeded()
    assert [breaker.wait() for _ in range(3)] == [0, 0, 0]


def test_only_consecutive_failures_count() -> None:
    breaker = CircuitBreaker(limit=2, reset=30)
    for _ in range(5):
        breaker.failed()
        breaker.succeeded()
    assert breaker.wait() == 0


def test_an_unfinished_probe_does_not_keep_the_breaker_open() -> None:
    clock = Clock()
    breaker = CircuitBreaker(limit=1, reset=30, clock=clock)
    breaker.failed()
    for _ in range(3):
        clock.now += 31
        assert breaker.wait() == 0
