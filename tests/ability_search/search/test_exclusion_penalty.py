import numpy as np

from ability_search.search.stages.exclusion_penalty import demoted


def test_candidates_close_to_the_exclusion_or_with_its_words_are_demoted() -> None:
    scores = demoted(
        np.array([0.5, 0.5, 0.5, 0.5, 0.5]),
        cosines=np.array([0.6, 0.4, 0.6, 0.6, 0.1]),
        excluded_cosines=np.array([0.5, 0.8, 0.5, 0.5, 1.0]),
        excluded_coverage=np.array([0.0, 0.0, 1.0, 0.5, 1.0]),
    )
    np.testing.assert_allclose(scores, [0.5, 0.3, 0.0, 0.375, 0.0])


def test_no_exclusion_changes_no_score() -> None:
    scores, zeros = np.array([0.9, 0.1]), np.zeros(2)
    unchanged = demoted(scores, cosines=scores, excluded_cosines=zeros, excluded_coverage=zeros)
    np.testing.assert_array_equal(unchanged, scores)
