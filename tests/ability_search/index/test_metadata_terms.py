"""Metadata as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.index.preparation import TERMS_OF_A_DOCUMENT, TERMS_OF_A_FIELD, metadata_terms
from ability_search.text.analyzer import analyzer_for
from ability_search.text.term_ids import metadata_field

ENGLISH = analyzer_for("english")


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({}, {}),
        ({"lang": "Running Dogs"}, {"metadata.lang": ["run", "dog"]}),
        ({"tags": ["a-b", 1, None, ["x"], "dogs"]}, {"metadata.tags": ["ab", "a", "b", "dog"]}),
        ({"year": 2026, "draft": True, "none": None, "blank": " "}, {}),
        ({"a": {"b": "x", "c": {"d": "y"}}}, {"metadata.a.b": ["x"], "metadata.a.c.d": ["y"]}),
        ({"a.b": "x", "a": {"b": "y"}}, {"metadata.a\\.b": ["x"], "metadata.a.b": ["y"]}),
        ({"list": [{"in": "maps"}]}, {}),
    ],
)
def test_texts_are_analyzed_under_the_keys_that_lead_to_them(
    metadata: dict[str, Any], fields: dict[str, list[str]]
) -> None:
    assert metadata_terms(metadata, ENGLISH) == fields


def test_long_texts_and_many_fields_are_bounded() -> None:
    words = " ".join(f"w{chr(97 + n % 26)}{n}" for n in range(10_000))
    found = metadata_terms({"none": 1, "text": words, "list": [words] * 9, "more": "x"}, ENGLISH)
    assert [len(terms) for terms in found.values()] == [TERMS_OF_A_FIELD] * 2
    many = metadata_terms({f"k{n}": "two words" for n in range(1000)}, ENGLISH)
    assert sum(map(len, many.values())) == TERMS_OF_A_DOCUMENT
    deep: Any = "x"
    for _ in range(2000):
        deep = {"a": deep}
    assert metadata_terms({"deep": deep}, ENGLISH) == {}


@given(st.lists(st.text(), min_size=1), st.lists(st.text(), min_size=1))
def test_no_two_keys_share_a_field(one: list[str], other: list[str]) -> None:
    assert (metadata_field(one) == metadata_field(other)) == (one == other)
