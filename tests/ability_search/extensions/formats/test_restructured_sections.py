"""reStructuredText cut at section titles."""

from __future__ import annotations

import logging

import pytest

from ability_search.extensions.formats import restructured_sections
from ability_search.extensions.formats.restructured_sections import read_blocks
from ability_search.text.chunkers.strategies import chunk


def kinds(text: str) -> list[tuple[str, str]]:
    return [(block.kind, text[block.start : block.end]) for block in read_blocks(text)]


def test_indented_text_belongs_to_its_introduction() -> None:
    text = "Example::\n\n    a\n\n    b\n\n.. note::\n\n   c\n\nend\n"
    assert kinds(text) == [
        ("code_block", "Example::\n\n    a\n\n    b"),
        ("code_block", ".. note::\n\n   c"),
        ("paragraph_open", "end"),
    ]


def test_indented_text_below_a_title_is_a_paragraph() -> None:
    assert kinds("Title\n=====\n\n    quoted\n") == [
        ("heading_open", "Title\n====="),
        ("paragraph_open", "    quoted"),
    ]


def test_levels_follow_the_order_of_the_adornments() -> None:
    text = "====\nBook\n====\n\nPart\n----\n\nChapter\n~~~~~~~\n\nNext\n----\n"
    assert [(block.title, block.level) for block in read_blocks(text)] == [
        ("Book", 1),
        ("Part", 2),
        ("Chapter", 3),
        ("Next", 2),
    ]


def test_a_text_with_too_many_blocks_is_cut_at_paragraphs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restructured_sections, "MOST_BLOCKS", 3)
    text = "Title\n=====\n\n" + "words\n\n" * 10
    with caplog.at_level(logging.WARNING):
        passages = chunk(text, format="rst")
    assert "more than 3 blocks" in caplog.text
    assert [each.breadcrumb for each in passages] == [""]
