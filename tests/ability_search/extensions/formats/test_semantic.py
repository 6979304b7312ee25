"""Chunks that end where the embedding turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.flows.conftest import word_vector
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.documents import Passage
from ability_search.extensions.formats.semantic import SentenceWindows
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import EstimatedTokens


def about(*words: str) -> str:
    """Six sentences with the same words in other orders."""
    return "".join(f"The {' '.join(words[n:] + words[:n])} is here. " for n in range(6))


BIRDS = about("heron", "waits", "beside", "pond", "eating", "fish")
SHIPS = about("ship", "engine", "burns", "heavy", "oil", "noisily")
BREAD = about("bread", "needs", "flour", "yeast", "salt", "water")


def cut(
    text: str, format: str | None = None, language: str | None = None, max_tokens: int = 500
) -> list[Passage]:
    windows = SentenceWindows(text, format, language)
    turns = []
    if windows.texts:
        turns = windows.turns(np.stack([word_vector(each) for each in windows.texts]))
    passages = chunk(text, strategy=turns, format=format, language=language, max_tokens=max_tokens)
    assert_sound(text, passages, EstimatedTokens(), max_tokens)
    return passages


@pytest.mark.parametrize("gap", ["", "\n\n"])
@pytest.mark.parametrize("format", [None, "text", "markdown"])
def test_a_chunk_ends_where_the_text_turns(gap: str, format: str | None) -> None:
    passages = cut(f"{BIRDS}{gap}{SHIPS}{gap}{BREAD}", format)
    assert [each.content for each in passages] == [BIRDS.strip(), SHIPS.strip(), BREAD.strip()]


def test_a_long_part_is_cut_at_the_limit_too() -> None:
    passages = cut(BIRDS * 6 + SHIPS * 6, max_tokens=60)
    assert len(passages) > 4
    assert not any("heron" in each.content and "ship" in each.content for each in passages)


def test_headings_stay_with_their_text_and_code_stays_whole() -> None:
    code = "```python\n" + "".join(f"x{n} = f(n)\n\n" for n in range(9)) + "```"
    text = f"# One\n\n{BIRDS}\n\n{code}\n\n{SHIPS}\n\n# Two\n\n{BREAD}"
    passages = cut(text, "markdown")
    assert [each.breadcrumb for each in passages] == ["One", "One", "Two"]
    assert [each.content.strip() for each in passages] == [
        f"# One\n\n{BIRDS}\n\n{code}",
        SHIPS.strip(),
        f"# Two\n\n{BREAD.strip()}",
    ]


@pytest.mark.parametrize(
    ("text", "format", "language"),
    [
        (BIRDS + SHIPS, "code", "python"),
        (BIRDS + SHIPS, "csv", None),
        ('{"a": "' + BIRDS + SHIPS + '"}', None, None),
        ("One sentence. Another one.", "text", None),
        ("", "markdown", None),
    ],
)
def test_texts_that_are_short_or_no_prose_do_not_turn(
    text: str, format: str | None, language: str | None
) -> None:
    assert SentenceWindows(text, format, language).texts == []


def test_a_uniform_text_does_not_turn() -> None:
    assert len(cut("The same sentence again. " * 20)) == 1


@given(
    st.lists(
        st.sampled_from([BIRDS, "# Head\n\n", "\n\n", "word", " ", "- item\n", "e\u0301", "🦊"])
    ),
    st.data(),
)
def test_turns_anywhere_leave_sound_chunks(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    turns = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=9)))
    format = data.draw(st.sampled_from([None, "markdown", "text", "code", "json"]))
    passages = chunk(text, strategy=turns, format=format, max_tokens=30)
    assert_sound(text, passages, EstimatedTokens(), 30)
