import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ability_search.search.stages.exclusion_penalty import demoted, excess


def test_candidates_close_to_the_exclusion_or_with_its_words_are_demoted() -> None:
    scores = demoted(
        np.full(5, 0.5),
        closer=np.array([[0.0, 0.2, 0.0, 0.0, 0.9]]),
        coverage=np.array([[0.0, 0.0, 1.0, 0.5, 1.0]]),
        denied=np.zeros((1, 5)),
    )
    np.testing.assert_allclose(scores, [0.5, 0.3, 0.0, 0.375, 0.0])


def test_text_that_denies_the_phrase_gains() -> None:
    scores = demoted(
        np.full(3, 0.5),
        closer=np.full((1, 3), 0.2),
        coverage=np.full((1, 3), 1.0),
        denied=np.array([[0.0, 0.5, 1.0]]),
    )
    np.testing.assert_allclose(scores, [0.0, 0.5 - 0.1 - 0.5 / 4 + 0.025, 0.55])


def test_of_several_phrases_the_worst_counts() -> None:
    scores = demoted(
        np.array([0.9]),
        closer=np.array([[0.1], [0.3]]),
        coverage=np.array([[1.0], [0.5]]),
        denied=np.array([[1.0], [0.0]]),
    )
    np.testing.assert_allclose(scores, [0.9 - 0.3 - 0.5 / 4 + 0.01])


def test_no_exclusion_changes_no_score() -> None:
    scores, zeros = np.array([0.9, 0.1]), np.zeros((1, 2))
    unchanged = demoted(scores, closer=zeros, coverage=zeros, denied=zeros)
    np.testing.assert_array_equal(unchanged, scores)


def test_excess_is_over_the_mean_of_query_and_relevant_candidates() -> None:
    closer = excess(
        np.array([0.5, 0.5]),
        cosines=np.array([0.4, 0.4]),
        excluded_cosines=np.array([0.8, 0.4]),
    )
    np.testing.assert_allclose(closer, [0.8 - (0.4 + 0.6) / 2, 0.0])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1), st.floats(0, 1))
def test_candidates_equally_close_to_the_phrase_are_lowered_by_their_distance_to_the_query_only(
    found: list[tuple[float, float]], close: float
) -> None:
    scores, cosines = np.array(found).T
    closer = excess(scores, cosines=cosines, excluded_cosines=np.full(len(found), close))
    np.testing.assert_allclose(closer, np.maximum(0.0, close - cosines) / 2, atol=1e-12)
