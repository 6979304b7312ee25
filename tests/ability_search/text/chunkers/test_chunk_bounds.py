"""What one text can take: time, memory and chunks are bounded, whatever it holds."""

from __future__ import annotations

import logging
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.documents import Passage
from ability_search.errors import TooLarge
from ability_search.text.chunkers import markdown_blocks as markdown
from ability_search.text.chunkers import symbols
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import EstimatedTokens

LINES = st.sampled_from(
    [
        *(
            "# Title",
            "Title [a] `b`",
            "=====",
            "---",
            "- item",
            "  more",
            "1. one",
            "> quoted",
            ">",
        ),
        *("```python", "```", "~~~~", "    code", "|a|b|", "|-|-|", "<div>", "<!-- x", "-->"),
        *("[a]: /url", "[b]:", "'title'", "plain words", "", "", "\tx", " \t", "\f", "a\\"),
    ]
)
MARKDOWN = st.tuples(st.lists(LINES, max_size=60), st.sampled_from(["\n", "\r\n", "\r"])).map(
    lambda drawn: drawn[1].join(drawn[0])
)


@given(text=MARKDOWN, stretch=st.integers(1, 60))
def test_markdown_read_in_stretches_is_what_it_is_as_a_whole(text: str, stretch: int) -> None:
    whole_blocks, whole_fences = markdown.read_blocks(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown, "_STRETCH", stretch)
        blocks, fences = markdown.read_blocks(text)
    assert (blocks, fences) == (whole_blocks, whole_fences)


def test_a_fence_longer_than_a_stretch_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_STRETCH", 50)
    monkeypatch.setattr(markdown, "_LONGEST_BLOCK", 100)
    code = "```python\n" + "# no heading\n\n" * 50 + "````\n\n# Heading\n\ntext\n"

    blocks, fences = markdown.read_blocks(code)

    assert [block.kind for block in blocks] == ["fence", "heading_open", "paragraph_open"]
    assert code[fences[0].start : fences[0].end].endswith("\n````")
    assert (blocks[0].start, blocks[0].end) == (fences[0].start, fences[0].end)


def test_a_table_longer_than_a_stretch_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_STRETCH", 50)
    monkeypatch.setattr(markdown, "_LONGEST_BLOCK", 100)
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 50

    blocks, _ = markdown.read_blocks(table + "\nafter\n")

    assert [block.kind for block in blocks] == ["table_open", "paragraph_open"]
    assert blocks[0].end == len(table.rstrip())


def test_a_title_is_read_with_a_definition_at_the_other_end_of_the_text() -> None:
    text = "# See [the *guide*][g]\n\n" + "words\n\n" * 40_000 + "[g]: /guide\n"

    blocks, _ = markdown.read_blocks(text)

    assert blocks[0].title == "See the guide"
    assert blocks[-1].kind == "definition"


@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        ("paragraphs", "a\n\n" * 60_000, "markdown"),
        ("quotes", "> a\n" * 50_000, "markdown"),
        ("lists", "- a\n" * 50_000, "markdown"),
        ("tables", ("|a" * 200 + "\n" + "|-" * 200 + "\n" + "a\n" * 330 + "\n") * 130, "markdown"),
        ("containers", "[]," * 60_000, "json"),
        ("brackets", "[" * 200_000, "json"),
        ("numbers", "[" + "1," * 100_000 + "1]", None),
        ("words", "a " * 100_000, "text"),
        ("lines", "a\n" * 100_000, "text"),
    ],
)
def test_memory_is_proportional_to_the_text(
    name: str, text: str, format: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens of the whole of ``lists`` would be over a thousand bytes a character."""
    monkeypatch.setattr(markdown, "_STRETCH", 1 << 11)
    monkeypatch.setattr(markdown, "_LONGEST_BLOCK", 1 << 13)
    chunk("warm up", format=format)
    tracemalloc.start()
    try:
        passages = chunk(text, format=format)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert passages, name
    assert peak < 220 * len(text)


@pytest.mark.parametrize("language", ["python", "ruby"])
def test_code_that_its_parser_takes_minutes_for_is_cut_at_blank_lines(
    language: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "def f():\n    pass\n\n" + "<!--" * 12_000
    with caplog.at_level(logging.WARNING):
        passages = chunk(text, format="code", language=language)

    assert_sound(text, passages, EstimatedTokens(), 500)
    assert "its parser takes too many steps" in caplog.text


def test_long_code_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "_PIECE", 200)
    monkeypatch.setattr(symbols, "_LONGEST_PIECE", 400)
    text = "".join(f"def größe_{n}():\n    a = {n}\n\n    return a\n\n\n" for n in range(100))

    passages = chunk(text, format="py", max_tokens=30)

    assert [each.breadcrumb for each in passages] == [f"größe_{n}" for n in range(100)]
    assert_sound(text, passages, EstimatedTokens(), 30)


def test_conditional_compilation_may_nest_however_deep() -> None:
    text = "#if X\n" * 3_000 + "int f(void) { return 1; }\n" + "#endif\n" * 3_000

    assert_sound(text, chunk(text, format="c"), EstimatedTokens(), 500)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("a\n=\n\n" * 100, "rst"),
        ("# a\n\nb\n\n" * 100, "markdown"),
        ("```\na\n```\n" * 100, "markdown"),
        ("def f():\n    pass\n\n" * 100, "py"),
        ("word " * 2_000, "text"),
        ("x" * 20_000, "text"),
        ("[" + "1, " * 2_000 + "1]", "json"),
    ],
)
def test_a_text_of_more_chunks_than_allowed_is_refused(text: str, format: str) -> None:
    made = chunk(text, format=format, max_tokens=20)
    assert len(made) > 50
    assert chunk(text, format=format, max_tokens=20, max_passages=len(made)) == made

    with pytest.raises(TooLarge, match=r"49 chunks .* \(max_document_chunks\)"):
        chunk(text, format=format, max_tokens=20, max_passages=49)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("# " + "long title " * 1_000 + "\n\ntext\n", "markdown"),
        ('{"' + "k" * 5_000 + '": [' + "1, " * 500 + "1]}", "json"),
        ("class " + "C" * 5_000 + ":\n" + "    def f(self):\n        pass\n\n" * 50, "py"),
        ("x" * 5_000 + "\n" + "=" * 5_000 + "\n\ntext\n", "rst"),
    ],
)
def test_a_breadcrumb_has_the_beginning_of_a_long_name(text: str, format: str) -> None:
    passages: list[Passage] = chunk(text, format=format, max_tokens=60)

    breadcrumbs = [each.breadcrumb for each in passages if each.breadcrumb]
    assert breadcrumbs
    assert max(map(len, breadcrumbs)) <= 320
