"""Ids of terms."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.text.term_arrays import term_ids

from ability_search.text.term_ids import (
    CONTENT,
    CONTEXT,
    TITLE,
    are_of_content,
    content_places,
    embedded_terms,
    term_id,
)


def test_term_ids_never_change() -> None:
    assert term_id(CONTENT, "search") == 157_855_401
    assert term_id(TITLE, "search") != term_id(CONTENT, "search")
    ids = term_ids(CONTENT, ["b", "a", "b", "\ud800"])
    assert ids.dtype.name == "int32"
    assert ids[0] == ids[2] != ids[1]
    assert term_ids(CONTENT, []).shape == (0,)


@given(st.text(max_size=20), st.text(max_size=20))
def test_term_ids_fit_30_bits_and_distinguish_content_from_other_fields(
    term: str, key: str
) -> None:
    content, title = term_ids(CONTENT, [term]), term_ids(TITLE, [term])
    other = term_ids(f"metadata.{key}", [term])
    assert 0 <= content[0] < 2**29 <= min(title[0], other[0])
    assert max(title[0], other[0]) < 2**30
    assert are_of_content(content).all()
    assert not are_of_content(title).any()
    assert title[0] < 3 * 2**28 <= other[0]


def test_terms_of_the_title_are_found_in_the_content() -> None:
    fields = ((CONTENT, "fox"), (TITLE, "fox"), (TITLE, "dog"), ("metadata.tags", "fox"))
    ids = np.concatenate([term_ids(field, [term]) for field, term in fields])
    assert content_places(ids).tolist() == [-2, 0, -1, -2]
    assert content_places(ids[:0]).shape == (0,)


def test_terms_of_the_embedded_text_are_the_same_in_each_of_its_fields() -> None:
    fields = (CONTENT, TITLE, CONTEXT, "metadata.tags")
    ids = np.array([term_ids(field, ["fox", "dog"]) for field in fields])
    fox, dog = embedded_terms(ids[:3]).T
    assert len(np.unique(ids)) == 8
    assert len(np.unique(fox)) == len(np.unique(dog)) == 1
    assert 0 <= fox[0] != dog[0] >= 0
    assert embedded_terms(ids[3]).tolist() == [-1, -1]
