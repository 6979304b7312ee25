"""Parsing Markdown into blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.text.chunkers import markdown_blocks as markdown

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


@given(text=MARKDOWN)
def test_blocks_cover_all_lines_that_are_not_blank(text: str) -> None:
    blocks, fences = markdown.read_blocks(text)
    end = 0
    for block in blocks:
        assert not text[end : block.start].strip()
        assert block.end > block.start >= end
        end = block.end
    assert not text[end:].strip()
    spans = [(block.start, block.end) for block in blocks]
    assert all(any(a <= fence.start < fence.end <= b for a, b in spans) for fence in fences)


def test_a_long_fence_is_one_block() -> None:
    code = "```python\n" + "# no heading\n\n" * 20_000 + "````\n\n# Heading\n\ntext\n"

    blocks, fences = markdown.read_blocks(code)

    assert [block.kind for block in blocks] == ["fence", "heading_open", "paragraph_open"]
    assert code[fences[0].start : fences[0].end].endswith("\n````")
    assert (blocks[0].start, blocks[0].end) == (fences[0].start, fences[0].end)


def test_a_long_table_is_one_block() -> None:
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 20_000

    blocks, _ = markdown.read_blocks(table + "\nafter\n")

    assert [block.kind for block in blocks] == ["table_open", "paragraph_open"]
    assert blocks[0].end == len(table.rstrip())


@pytest.mark.slow
def test_a_title_can_refer_to_a_definition_at_the_end_of_the_text() -> None:
    text = "# See [the *guide*][g]\n\n" + "words\n\n" * 40_000 + "[g]: /guide\n"

    blocks, _ = markdown.read_blocks(text)

    assert blocks[0].title == "See the guide"
    assert blocks[-1].kind == "definition"
