from __future__ import annotations

from kadi_client.messages import Raw
from kadi_client.params import AbilityResponse
from kadi_client.session import OpenCalls


def outcome(request_id: str | int, size: int = 1) -> AbilityResponse:
    return AbilityResponse(request_id=request_id, result=Raw(b"1" * size))


def calling(number: int = 1, max_bytes: int = 10_000) -> OpenCalls:
    calls = OpenCalls(max_bytes=max_bytes)
    for key in range(number):
        calls.start(key, f"own-{key}")
    return calls


def test_an_early_outcome_is_taken_once() -> None:
    calls = calling(2)
    assert calls.key_of(outcome(7)) is None
    taken = calls.acknowledge(0, "7")
    assert taken is not None
    assert taken.request_id == 7
    assert calls.acknowledge(1, "7") is None


def test_the_oldest_early_outcomes_give_way() -> None:
    calls = calling(4, max_bytes=3000)
    for name in "abc":
        calls.key_of(outcome(name, size=1000))
    assert calls.acknowledge(0, "a") is None
    calls.key_of(outcome("d", size=3000))
    assert calls.acknowledge(1, "b") is None
    assert calls.acknowledge(2, "d") is None


def test_an_early_outcome_that_is_repeated_is_counted_once() -> None:
    calls = calling(2, max_bytes=3000)
    for _ in range(5):
        calls.key_of(outcome("a", size=2000))
    assert calls.acknowledge(0, "a") is not None


def test_a_call_that_has_ended_is_unknown() -> None:
    calls = calling()
    calls.acknowledge(0, "its-own")
    assert calls.key_of(outcome("own-0")) is None
    assert calls.key_of(outcome("its-own")) == 0
    assert calls.end(0) == "its-own"
    assert calls.end(0) is None
    assert calls.key_of(outcome("its-own")) is None


def test_two_calls_that_are_acknowledged_under_one_id_both_end() -> None:
    calls = calling(2)
    calls.acknowledge(0, "same")
    calls.acknowledge(1, "same")
    assert [calls.end(0), calls.end(1), len(calls)] == ["same", "same", 0]
