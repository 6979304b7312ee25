"""Pseudo-relevance feedback: weights, cosines to a moved vector, expansion terms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.search.stages.feedback import feedback_weights, rocchio_cosines
from ability_search.search.stages.pseudo_relevance import expansion_terms, moved_vector
from ability_search.text.bm25 import inverse_document_frequency
from ability_search.text.term_ids import CONTENT, TITLE, term_id
from ability_search.text.term_statistics import TermStatistics


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    vectors: np.ndarray = rng.standard_normal(shape)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(0, 8), st.floats(0, 3))
def test_rocchio_cosines_equal_cosines_to_the_moved_vector(
    seed: int, learned: int, others: int, beta: float
) -> None:
    rng = np.random.default_rng(seed)
    query, chunks = unit(rng, 16), unit(rng, learned + others, 16)
    weights = feedback_weights(np.sort(rng.random(learned))[::-1])
    moved = query + beta * weights @ chunks[:learned]
    wanted = chunks @ moved / np.linalg.norm(moved)
    found = rocchio_cosines(chunks @ query, chunks @ chunks[:learned].T, weights, beta=beta)
    assert found == pytest.approx(wanted, abs=1e-9)


def test_beta_zero_changes_nothing() -> None:
    cosines = [0.9, 0.1]
    assert rocchio_cosines(cosines, [[1.0], [0.3]], [1.0], beta=0).tolist() == cosines


def test_clear_winner_gets_all_weight_and_equal_hits_share_it() -> None:
    assert feedback_weights([0.5]).tolist() == [1.0]
    assert feedback_weights([0.5, 0.5]).tolist() == [0.5, 0.5]
    assert feedback_weights([0.9, 0.1, 0.0])[0] > 0.999
    assert feedback_weights([0.9, 0.8]).tolist() == pytest.approx([0.731, 0.269], abs=1e-3)


@given(st.integers(0, 1000), st.integers(1, 5), st.floats(0, 3))
def test_moved_vector_has_the_rocchio_cosines(seed: int, learned: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    query, chunks = unit(rng, 16), unit(rng, learned + 3, 16)
    weights = feedback_weights(np.sort(rng.random(learned))[::-1])
    moved = moved_vector(query, chunks[:learned], weights, beta=beta)
    told = rocchio_cosines(chunks @ query, chunks @ chunks[:learned].T, weights, beta=beta)
    assert chunks @ moved == pytest.approx(told, abs=1e-9)


def test_cancelled_vector_is_unchanged() -> None:
    assert moved_vector([1.0, 0.0], [[-1.0, 0.0]], [1.0], beta=1).tolist() == [1.0, 0.0]


FOX, DOG, CAT, OWL, RARE = (term_id(CONTENT, word) for word in ("fox", "dog", "cat", "owl", "rare"))
TITLED = term_id(TITLE, "fox")


def statistics(counts: dict[int, int], chunks: int = 100) -> TermStatistics:
    ids = np.array(sorted(counts), np.int32)
    return TermStatistics(
        chunks, 1000, ids, np.array([counts[each] for each in sorted(counts)], np.int32)
    )


COUNTS = statistics({FOX: 10, DOG: 20, CAT: 50, OWL: 10, RARE: 1, TITLED: 5})


def test_expansion_terms_have_the_greatest_weighted_rarity() -> None:
    taught = [([FOX, DOG, CAT], [2.0, 2.0, 1.0]), ([DOG, OWL], [2.0, 1.0])]
    found = expansion_terms(taught, [0.75, 0.25], COUNTS, own=[], count=9)
    sums = {FOX: 1.5, DOG: 2.0, CAT: 0.75, OWL: 0.25}
    idf = {
        id_: float(inverse_document_frequency(n, 100))
        for id_, n in {FOX: 10, DOG: 20, CAT: 50, OWL: 10}.items()
    }
    assert dict(zip(found.ids, found.weights, strict=True)) == pytest.approx(
        {id_: sums[id_] * idf[id_] for id_ in sums}
    )
    assert list(found.ids) == sorted(sums)
    assert found.information == pytest.approx(sum(found.weights))
    best = expansion_terms(taught, [0.75, 0.25], COUNTS, own=[], count=2)
    assert set(best.ids) == {FOX, DOG}


def test_query_terms_title_terms_and_terms_of_no_other_chunk_are_left_out() -> None:
    taught = [([FOX, DOG, RARE, TITLED], [1.0] * 4)]
    found = expansion_terms(taught, [1.0], COUNTS, own=[FOX], count=9)
    assert found.ids == (DOG,)
    two = [([RARE, DOG], [1.0, 1.0]), ([RARE], [1.0])]
    assert expansion_terms(two, [0.5, 0.5], statistics({RARE: 2, DOG: 2}), own=[], count=9).ids == (
        DOG,
    )


def test_no_feedback_gives_no_expansion_terms() -> None:
    for taught, shares in (([], []), ([([], [])], [1.0]), ([([FOX], [1.0])], [1.0])):
        found = expansion_terms(taught, shares, COUNTS, own=[], count=0 if taught else 9)
        assert (found.ids, found.weights, found.information) == ((), (), 0)


def test_ties_go_to_the_lower_term_ids() -> None:
    counts = statistics(dict.fromkeys(range(10), 5))
    found = expansion_terms([(list(range(10)), [1.0] * 10)], [1.0], counts, own=[], count=3)
    assert found.ids == (0, 1, 2)
