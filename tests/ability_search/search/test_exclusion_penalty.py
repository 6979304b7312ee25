import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.search.stages.contrastive_feedback import kinship
from ability_search.search.stages.exclusion_penalty import aboutness, demoted


def test_candidates_close_to_the_exclusion_or_with_its_words_are_demoted() -> None:
    scores = demoted(
        np.array([0.5, 0.5, 0.5, 0.5, 0.5]),
        cosines=np.array([0.6, 0.4, 0.6, 0.6, 0.1]),
        excluded_cosines=np.array([0.5, 0.8, 0.5, 0.5, 1.0]),
        excluded_coverage=np.array([0.0, 0.0, 1.0, 0.5, 1.0]),
    )
    np.testing.assert_allclose(scores, [0.5, 0.3, 0.2, 0.425, 0.0])


def test_no_exclusion_changes_no_score() -> None:
    scores, zeros = np.array([0.9, 0.1]), np.zeros(2)
    unchanged = demoted(scores, cosines=scores, excluded_cosines=zeros, excluded_coverage=zeros)
    np.testing.assert_array_equal(unchanged, scores)


def test_aboutness_is_the_weighted_mean_of_cosine_and_coverage() -> None:
    about = aboutness(np.array([1.0, 0.8, 0.8, 0.0]), np.array([1.0, 0.0, 0.5, 0.0]))
    np.testing.assert_allclose(about, [1.0, 0.5, 0.59375, 0.0])


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1), st.floats(0.01, 1))
def test_kinship_needs_similarity_without_being_about_the_exclusion(
    found: list[tuple[float, float]], example: float
) -> None:
    likeness, about = np.array(found).T
    kin = kinship(likeness, about, example=example)
    assert ((kin >= 0) & (kin <= np.maximum(likeness, 0))).all()
    assert (kin[about >= example] == 0).all()
    assert kinship(likeness, np.zeros(len(found)), example=example) == pytest.approx(
        np.maximum(likeness, 0)
    )


def test_half_the_aboutness_halves_the_kinship() -> None:
    kin = kinship(np.array([0.6, 0.6, 1.0]), np.array([0.2, 0.4, 0.8]), example=0.8)
    np.testing.assert_allclose(kin, [0.45, 0.3, 0.0])
