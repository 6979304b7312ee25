import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.search.stages.phrase_match import raised
from ability_search.text.phrase_pairs import WORDS_LIMIT, phrase_pairs, spaced, words_of

QUERY = phrase_pairs(["wrap", "and", "sort", "dependencies"], [3.0, 0.5, 2.0, 4.0])


def test_words_are_folded_and_separated() -> None:
    assert words_of("Wrap-and-sort:  ﬁles_2, ÀB!") == ["wrap", "and", "sort", "files_2", "àb"]
    assert spaced("Wrap-and-sort!") == " wrap and sort "


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("Wrap and sort, dependencies", 1.0),
        ("They wrap and unwrap.", 3.5 / 12),
        ("dependencies: sort and wrap", 0.0),
        ("sort dependencies; wrap\nand", 9.5 / 12),
        ("bubblewrap and sortable", 0.0),
        ("", 0.0),
    ],
)
def test_share_is_the_weight_of_pairs_in_the_text(text: str, share: float) -> None:
    assert QUERY is not None
    assert math.isclose(QUERY.share(text), share)


def test_repeated_pair_counts_once() -> None:
    found = phrase_pairs(["a", "b", "a", "b"], [1.0, 1.0, 1.0, 1.0])
    assert found is not None
    assert found.pairs == (" a b ", " b a ")
    assert math.isclose(sum(found.weights), 1.0)


def test_long_and_uninformative_queries_have_no_pairs() -> None:
    long = [f"w{n}" for n in range(WORDS_LIMIT + 1)]
    assert phrase_pairs(long, [1.0] * len(long)) is None
    assert phrase_pairs(long[1:], [1.0] * WORDS_LIMIT) is not None
    assert phrase_pairs(["one"], [1.0]) is None
    assert phrase_pairs([], []) is None
    assert phrase_pairs(["the", "of"], [0.0, 0.0]) is None


def test_scores_rise_by_the_square_of_the_share() -> None:
    scores = raised(np.array([0.5, 0.5, 0.0, 1.0]), np.array([0.0, 0.5, 1.0, 1.0]), weight=0.4)
    assert scores.tolist() == pytest.approx([0.5, 0.55, 0.4, 1.0])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=8), st.floats(0, 1), st.text()
)
def test_no_score_falls_or_leaves_its_bounds(
    each: list[tuple[float, float]], weight: float, text: str
) -> None:
    before = np.array([score for score, _ in each])
    after = raised(before, np.array([share for _, share in each]), weight=weight)
    assert ((before <= after + 1e-12) & (after <= 1 + 1e-12)).all()
    assert (raised(before, np.ones(len(each)), weight=0.0) == before).all()
    words = words_of(text)[:WORDS_LIMIT]
    found = phrase_pairs(words, [1.0] * len(words))
    assert (found is None) == (len(words) < 2)
    assert found is None or math.isclose(found.share(text), 1.0) or len(words) == WORDS_LIMIT
