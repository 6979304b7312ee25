from __future__ import annotations

from kadi_client.correlation import EarlyResults
from kadi_client.messages import Raw
from kadi_client.params import AbilityResponse


def outcome(request_id: str | int, size: int = 1) -> AbilityResponse:
    return AbilityResponse(request_id=request_id, result=Raw(b"1" * size))


def test_an_outcome_is_taken_once() -> None:
    early = EarlyResults()
    early.put(outcome(7), now=0.0)
    taken = early.take("7", now=1.0)
    assert taken is not None
    assert taken.request_id == 7
    assert early.take("7", now=1.0) is None


def test_outcomes_expire() -> None:
    early = EarlyResults(ttl=5.0)
    early.put(outcome("a"), now=0.0)
    early.put(outcome("b"), now=3.0)
    assert early.take("a", now=5.0) is None
    assert early.take("b", now=5.0) is not None


def test_the_oldest_give_way_to_count_and_to_bytes() -> None:
    early = EarlyResults(max_count=2, max_bytes=10)
    for name in "abc":
        early.put(outcome(name), now=0.0)
    assert early.take("a", now=0.0) is None
    early.put(outcome("d", size=10), now=0.0)
    assert early.take("c", now=0.0) is None
    assert early.take("d", now=0.0) is not None
    early.put(outcome("e", size=11), now=0.0)
    assert len(early) == 0


def test_an_outcome_that_is_repeated_is_counted_once() -> None:
    early = EarlyResults(max_bytes=10)
    for _ in range(5):
        early.put(outcome("a", size=6), now=0.0)
    assert early.take("a", now=0.0) is not None
    early.put(outcome("b", size=10), now=0.0)
    early.clear()
    early.put(outcome("c", size=10), now=0.0)
    assert early.take("c", now=0.0) is not None
