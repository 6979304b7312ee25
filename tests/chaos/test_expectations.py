"""The model of what a collection must hold."""

from __future__ import annotations

import pytest
from chaos.expectations import LATE_SECONDS, Expectation, Violation
from hypothesis import given
from hypothesis import strategies as st

STATES = st.one_of(st.none(), st.integers(0, 4))
CHANGES = st.dictionaries(st.sampled_from("abcd"), STATES, min_size=1)


def test_an_acknowledged_change_must_be_there() -> None:
    expectation = Expectation()
    expectation.acknowledge({"a": 1})
    expectation.observe({"a": 1, "b": None}, 0.0)
    for wrong in (None, 2):
        with pytest.raises(Violation, match="'a'"):
            expectation.observe({"a": wrong}, 0.0)


def test_a_deleted_source_must_be_gone() -> None:
    expectation = Expectation()
    expectation.acknowledge({"a": 1, "b": 2})
    expectation.acknowledge({"a": None})
    expectation.observe({"a": None, "b": 2}, 0.0)
    assert not expectation.allows("a", 1)
    assert expectation.certain() == {"b": 2}
    assert expectation.present() == ["b"]


def test_a_change_of_unknown_outcome_allows_the_old_and_the_new_state_and_nothing_else() -> None:
    expectation = Expectation()
    expectation.acknowledge({"a": 1})
    expectation.doubt({"a": 2, "b": 0}, 0.0)
    assert expectation.certain() is None
    assert expectation.present() == ["a"]
    for a, b in ((1, None), (2, None), (1, 0), (2, 0)):
        expectation.observe({"a": a, "b": b}, 1.0)
    for source, state in (("a", None), ("a", 3), ("b", 1)):
        with pytest.raises(Violation):
            expectation.observe({source: state}, 1.0)


def test_a_late_change_is_allowed_until_it_is_too_late() -> None:
    expectation = Expectation()
    expectation.doubt({"a": 2}, 10.0)
    expectation.observe({"a": None}, 10.0 + LATE_SECONDS - 1)
    expectation.observe({"a": 2}, 10.0 + LATE_SECONDS - 1)
    expectation.observe({"a": None}, 10.0 + LATE_SECONDS)
    assert expectation.settled(10.0 + LATE_SECONDS)
    with pytest.raises(Violation):
        expectation.observe({"a": 2}, 10.0 + LATE_SECONDS)


def test_a_replacement_of_unknown_outcome_is_all_or_nothing() -> None:
    expectation = Expectation()
    expectation.acknowledge({"a": 1, "b": 1})
    expectation.doubt_replacement({"b": 2, "c": 2}, 0.0)
    expectation.observe({"a": 1, "b": 1, "c": None}, 1.0)
    expectation.observe({"a": None, "b": 2, "c": 2}, 1.0)
    with pytest.raises(Violation, match=" or "):
        expectation.observe({"a": 1, "b": 2, "c": None}, 1.0)
    expectation.observe({"c": 2}, LATE_SECONDS)
    assert expectation.certain() == {"b": 2, "c": 2}


def test_a_change_after_a_replacement_of_unknown_outcome_holds_either_way() -> None:
    expectation = Expectation()
    expectation.acknowledge({"a": 1})
    expectation.doubt_replacement({}, 0.0)
    expectation.acknowledge({"b": 3})
    expectation.observe({"a": 1, "b": 3}, 1.0)
    expectation.observe({"a": None, "b": 3}, 1.0)
    with pytest.raises(Violation):
        expectation.observe({"b": None}, 1.0)


def test_after_a_violation_what_was_seen_is_expected() -> None:
    expectation = Expectation()
    expectation.acknowledge({"a": 1, "b": 1})
    expectation.adopt({"a": None})
    expectation.observe({"a": None, "b": 1}, 0.0)


@given(st.lists(st.tuples(st.booleans(), CHANGES)))
def test_the_real_state_is_always_allowed(
    history: list[tuple[bool, dict[str, int | None]]],
) -> None:
    # Unknown outcomes: the first change of each call happens, the others do not.
    expectation, real = Expectation(), dict[str, int | None]()
    for number, (known, changes) in enumerate(history):
        if known:
            real.update(changes)
            expectation.acknowledge(changes)
        else:
            first = next(iter(changes))
            real[first] = changes[first]
            expectation.doubt(changes, float(number))
        expectation.observe(real, float(number))
    end = len(history) + LATE_SECONDS
    expectation.observe({source: real.get(source) for source in "abcd"}, end)
    assert expectation.certain() == {
        source: state for source, state in real.items() if state is not None
    }
