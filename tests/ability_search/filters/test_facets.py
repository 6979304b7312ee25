"""Facets of metadata."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.errors import InvalidInput
from ability_search.filters.facets import check_size, facets_of


@pytest.mark.parametrize(
    ("metadata", "facets"),
    [
        ({}, []),
        ({"lang": "en"}, ['lang="en"']),
        ({"year": 2024, "draft": True, "gone": None}, ["year=2024", "draft=true"]),
        ({"v": 1.0, "w": -0.0, "x": 0.5}, ["v=1", "w=0", "x=0.5"]),
        ({"a": {"b": {"c": 1}}}, ["a.b.c=1"]),
        ({"a.b": 1, "c=d": 2, "#e": 3, "f\\g": 4}, ["a\\.b=1", "c\\=d=2", "\\#e=3", "f\\\\g=4"]),
        ({"tags": ["a", "b", "a"]}, ['tags="a"', 'tags="b"', 'tags=["a","b","a"]']),
        ({"tags": []}, ["tags=[]"]),
        ({"tags": ["a", None, {"x": 1}, ["z"]]}, ['tags="a"']),
        ({"": ""}, ['=""']),
        ({"k": "é😀\n"}, ['k="é😀\\n"']),
    ],
)
def test_scalars_and_lists_have_facets(metadata: dict[str, Any], facets: list[str]) -> None:
    assert facets_of(metadata) == facets


def test_long_values_have_distinct_hashes() -> None:
    first, second = facets_of({"a": "x" * 5000, "b": "x" * 4999 + "y"})
    (other_key,) = facets_of({"c": "x" * 5000})
    assert len({first, second, other_key}) == 3
    assert all(facet.startswith("#") and len(facet) == 65 for facet in (first, second, other_key))


scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text()
).filter(lambda value: value not in (math.inf, -math.inf))


paths = st.lists(st.text(alphabet='a.=#\\"1'), min_size=1, max_size=3)


def nested(path: list[str], value: Any) -> dict[str, Any]:
    *outer, last = path
    tree = {last: value}
    for key in reversed(outer):
        tree = {key: tree}
    return tree


@given(paths, scalars, paths, scalars)
def test_two_values_share_a_facet_only_if_they_are_equal(
    path: list[str], value: Any, other_path: list[str], other: Any
) -> None:
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (value, other)]
    equal = value == other and (all(numbers) or type(value) is type(other))
    same = facets_of(nested(path, value)) == facets_of(nested(other_path, other))
    assert same is (path == other_path and equal)


deep: Any = 1
for _ in range(20):
    deep = {"a": deep}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"a": {"b": math.nan}}, r"metadata\.a\.b: is not a finite number"),
        ({"a": [1, 2**63]}, r"metadata\.a\.1: is a whole number of more than 64 bits"),
        ({"a": "\ud83d"}, r"metadata\.a: holds a lone surrogate"),
        ({"\ud83d": 1}, r"holds a lone surrogate"),
        ({1: "a"}, r"metadata key 1: is a number, not a string"),
        ({"a": b"bytes"}, r"metadata\.a: is bytes, which JSON does not know"),
        ({"a": [[{"b": math.inf}]]}, r"metadata\.a\.0\.0\.b: is not a finite number"),
        ({"@type": "Article"}, r"metadata: has the key @type, which the database reserves"),
        (deep, r"is nested too deep"),
        ({"a": list(range(2000))}, r"metadata: has more than 1024 values"),
    ],
)
def test_metadata_that_filters_cannot_cover_is_rejected(metadata: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        facets_of(metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"a": [1] * 10_001}, "more than 10000 values"),
        ({"a": [None] * 10_001}, "more than 10000 values"),
        ({"a": [{"b": [[]] * 60}] * 200}, "more than 10000 values"),
        ({"a": "x" * 200_000, "b": ["ä" * 40_000]}, "more than 262144 bytes of text"),
        ({"x" * 300_000: 1}, "more than 262144 bytes of text"),
    ],
)
def test_metadata_that_is_too_large_for_each_chunk_is_rejected(metadata: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_size(metadata)


def test_metadata_within_the_limits_may_repeat_values() -> None:
    check_size({"a": [1] * 9_990, "b": {"c": "x" * 262_000}})
