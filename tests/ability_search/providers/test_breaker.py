from __future__ import annotations

import pytest

from ability_search.providers.model_calls import CircuitBreaker, CircuitBreakers


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


def test_a_model_that_fails_leaves_the_others_alone() -> None:
    clock = Clock()
    breakers = CircuitBreakers(limit=2, reset=30, clock=clock)
    for _ in range(2):
        breakers.of_model("broken").failed()
    assert breakers.of_model("broken").wait() == pytest.approx(30)
    assert breakers.of_model("other").wait() == breakers.of_model(None).wait() == 0
    assert breakers.any_open
    clock.now += 31
    assert not breakers.any_open
    breakers.of_model("broken").succeeded()
    assert breakers.of_model("broken").wait() == 0


def test_breakers_are_bounded_and_those_without_failures_go_first() -> None:
    breakers = CircuitBreakers(limit=1, reset=30)
    breakers.of_model("broken").failed()
    for n in range(1000):
        breakers.of_model(f"model {n}")
    assert len(breakers) == 64
    assert breakers.of_model("broken").failures == 1
    for n in range(1000):
        breakers.of_model(f"failing {n}").failed()
    assert len(breakers) == 64
    assert breakers.of_model("broken").failures == 0
    assert breakers.of_model("failing 999").failures == 1
