import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.notes.contradictions import BEFORE, BEHIND, is_negated


def occurrences(text: str, *terms: str) -> list[tuple[str, int, int]]:
    return [
        (term, found.start(), found.end())
        for term in terms
        for found in re.finditer(term, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("cue", [*BEFORE, *BEHIND], ids=lambda cue: cue.example)
def test_a_cue_negates_in_the_example_only(cue: object) -> None:
    assert isinstance(cue, type(BEFORE[0]))
    for text, negated in ((cue.example, True), (cue.counterexample, False)):
        assert [is_negated(text, start, end) for _, start, end in occurrences(text, "cream")] == [
            negated
        ]


NEGATED = [
    "pets are not allowed, least of all dogs",
    "no cats, dogs or snakes",
    "we don't keep any dogs",
    "a flat without a balcony or dogs",
    "DOGS WERE EXCLUDED",
    "neither cats nor dogs",
    "this park is free of dogs",
    "dog-free beaches",
]
AFFIRMED = [
    "dogs do not bite",
    "no, because dogs bark",
    "not only dogs",
    "there is no fence; dogs run around",
    "nothing beats a walk with two old and very friendly dogs",
    "dogs without leash",
]


@pytest.mark.parametrize("text", NEGATED)
def test_what_a_text_denies_is_negated(text: str) -> None:
    _, start, end = occurrences(text, "dogs?")[-1]
    assert is_negated(text, start, end)


@pytest.mark.parametrize("text", AFFIRMED)
def test_what_a_text_is_about_is_not_negated(text: str) -> None:
    assert not any(is_negated(text, start, end) for _, start, end in occurrences(text, "dog"))


@given(st.text(alphabet="no not isn't \n.,wW-", max_size=300), st.integers(0, 300))
def test_any_text_is_read(text: str, at: int) -> None:
    start = min(at, len(text))
    assert is_negated(text, start, min(start + 2, len(text))) in {True, False}
