"""Rules on field values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.reranking import FieldRule, Rules
from ability_search.extensions.reranking.field_rules import boosts, equals, holds_text, places


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ("Network SECURITY", True),
        ("secure", False),
        (["other", "Security"], True),
        (["other", ["security"]], False),
        ({"security": "security"}, False),
        (1, False),
        (None, False),
        ([], False),
    ],
)
def test_contained_text_is_found(value: Any, held: bool) -> None:
    assert holds_text(value, "sEcurity") is held


def test_case_is_folded_in_every_language() -> None:
    assert holds_text("GROSSE STRASSE", "straße")
    assert equals("ΣΊΣΥΦΟΣ", "σίσυφος")


@pytest.mark.parametrize(
    ("value", "wanted", "same"),
    [
        ("Stable", "stable", True),
        ("stables", "stable", False),
        (1, 1.0, True),
        (1, True, False),
        (True, True, True),
        (False, 0, False),
        ("1", 1, False),
        (["beta", "STABLE"], "stable", True),
        ([1, 2], 2, True),
        ([], "stable", False),
        (None, False, False),
        ({"a": 1}, 1, False),
    ],
)
def test_values_are_compared_by_type_and_value(value: Any, wanted: Any, same: bool) -> None:
    assert equals(value, wanted) is same


def test_equal_values_share_a_place_and_missing_values_have_none() -> None:
    dates = ["2026-03-01", None, "2024-01-31", "2026-03-01", "2025"]
    assert places(dates, descending=True) == pytest.approx([1, 0, 1 / 3, 1, 2 / 3])
    assert places(dates, descending=False) == pytest.approx([1 / 3, 0, 1, 1 / 3, 2 / 3])
    assert places([None, {}, []], descending=True) == [0, 0, 0]
    assert places([], descending=True) == []
    assert places([7, 7.0], descending=False) == [1, 1]


def test_mixed_types_are_ordered_by_type_then_value() -> None:
    values = ["b", 10, True, "A", 2.5, False]
    ascending = places(values, descending=False)
    assert sorted(values, key=lambda each: -ascending[values.index(each)]) == [
        False, True, 2.5, 10, "A", "b",
    ]  # fmt: skip
    descending = places(values, descending=True)
    assert [a + b for a, b in zip(ascending, descending, strict=True)] == pytest.approx([7 / 6] * 6)


def test_first_element_of_a_list_counts() -> None:
    assert places([[1, 9], 5], descending=True) == [1, 0.5]
    assert places([[1, 9], 5], descending=False) == [1, 0.5]


def rule(weight: float, **rules: Any) -> FieldRule:
    return FieldRule(weight=weight, rules=Rules.model_construct(**rules))


def test_rules_on_one_field_stack() -> None:
    values = ["auth guide", "auth", "other"]
    found = boosts(values, rule(0.5, contains="auth", priority="auth", sort="asc"))
    assert found == pytest.approx([1.5 * (1 + 0.5 * 2 / 3), 1.5 * 1.5 * 1.5, 1 + 0.5 / 3])


def test_empty_and_false_priorities_are_rules() -> None:
    assert boosts([0, False, ""], rule(1, priority=False)) == [1, 2, 1]
    assert boosts([0, False, ""], rule(1, priority=0)) == [2, 1, 1]
    assert boosts([0, False, ""], rule(1, priority="")) == [1, 1, 2]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
orders = st.none() | st.sampled_from(["asc", "desc"])
values = st.lists(scalars | st.lists(scalars) | st.dictionaries(st.text(), scalars))


@given(values, st.text(min_size=1), scalars, orders)
def test_weight_zero_changes_nothing(
    found: list[Any], text: str, wanted: Any, sort: str | None
) -> None:
    every = rule(0, contains=text, priority=wanted, sort=sort)
    assert boosts(found, every) == [1.0] * len(found)


@given(values, st.text(min_size=1), scalars, orders, st.floats(0, 100))
def test_no_boost_is_above_that_of_all_rules_together(
    found: list[Any], text: str, wanted: Any, sort: str | None, weight: float
) -> None:
    factors = boosts(found, rule(weight, contains=text, priority=wanted, sort=sort))
    most = (1 + weight) ** 3 * (1 + 1e-12)  # rounding
    assert all(1 <= factor <= most for factor in factors)


@given(values)
def test_places_are_ordered_for_mixed_types(found: list[Any]) -> None:
    descending = places(found, descending=True)
    assert all(0 <= place <= 1 for place in descending)
    plain = [value for value in found if isinstance(value, int | float | str)]
    if plain:
        assert max(places(plain, descending=True)) == max(places(plain, descending=False)) == 1
