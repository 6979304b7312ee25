"""Demotion of candidates about what is excluded, without a database."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.ability_search.search import values
from tests.ability_search.search.values import candidates_of, chunk

from ability_search.extensions.understanding.intent_scores import EXCLUSION_PENALTY, SHARE
from ability_search.search.wants import SearchRequest
from ability_search.text.bm25 import QueryTerms

TERMS = QueryTerms((1,), (2.0,), 2.0)
PLAN = SearchRequest(products={"excluded0Words": TERMS, "excluded1Words": TERMS})


def factors(*columns: dict[str, Any], plan: SearchRequest = PLAN) -> list[float]:
    """Return the factor of each candidate with these columns, for two excluded phrases."""
    query = values.understood_query("caching besides Redis or disks")
    items = []
    for place, own in enumerate(columns):
        item = chunk(f"#{place}", str(place), 0.5)
        item.score, item.columns = 0.5, own
        items.append(item)
    candidates = candidates_of(query, plan, items, 0)
    candidates.blocks = [items]
    values.apply(EXCLUSION_PENALTY, candidates)
    return [item.score / 0.5 for item in items]


def about(cosine: float | None, words: float | None, place: int = 0) -> dict[str, Any]:
    return {f"excluded{place}": cosine, f"excluded{place}Words": words}


def test_cosine_and_words_of_a_phrase_demote() -> None:
    found = factors(about(-1.0, 0.0), about(0.5, 0.0), about(0.5, 1.0), about(1.0, 9.0))
    assert found == pytest.approx([1.0, 1 - SHARE / 3, 1 - SHARE * 7 / 12, 1 - SHARE])


def test_of_several_phrases_the_worst_counts() -> None:
    (found,) = factors(about(0.2, 0.0) | about(0.5, 2.0, place=1))
    assert found == pytest.approx(1 - SHARE * 5 / 6)


def test_what_is_unknown_leaves_the_other_alone() -> None:
    assert factors(about(None, 2.0)) == pytest.approx([1 - SHARE])
    silent = QueryTerms((), (), 0.0)
    plan = structs.replace(PLAN, products={"excluded0Words": silent, "excluded1Words": silent})
    assert factors(about(0.5, None), plan=plan) == pytest.approx([1 - SHARE * 2 / 3])
    assert factors({}, plan=plan) == [1.0]


@given(st.floats(-1, 1), st.floats(0, 50))
def test_no_candidate_loses_more_than_the_share(cosine: float, words: float) -> None:
    (found,) = factors(about(cosine, words))
    assert 1 - SHARE - 1e-9 <= found <= 1
