"""Turns of a conversation and what comes before them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ability_search.documents import Document
from ability_search.index.preparation import Recipe, prepare
from ability_search.index.sequences import CONTEXT, SHORT, preceding_sources, with_preceding
from ability_search.store.memory import MemoryStore
from ability_search.text.analyzer import analyzer_for
from ability_search.text.token_counter import EstimatedTokens

RECIPE = Recipe("auto", 500, 50, "english")


def turn(source: str, content: str = "Yes, in May!", title: str = "") -> Document:
    return Document(source, title, content, {"speaker": "Ann"})


def prepared(document: Document) -> tuple[str, list[str]]:
    found = prepare(
        document,
        RECIPE,
        content_hash="",
        analyzer=analyzer_for("english"),
        count=EstimatedTokens(),
    )
    return found.texts[0], list(found.context_terms[0])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("chat/7", ["chat/5", "chat/6"]),
        ("chat/10", ["chat/8", "chat/9"]),
        ("chat/0010", ["chat/0008", "chat/0009"]),
        ("D1:1", ["D1:0"]),
        ("D1:0", []),
        ("a#b#3", ["a#b#1", "a#b#2"]),
        ("7", []),
        ("/7", []),
        ("note7", []),
        ("note-7", []),
        ("chat", []),
        ("chat/1234567890", []),
    ],
)
def test_the_number_at_the_end_of_a_source_tells_what_comes_before(
    source: str, expected: list[str]
) -> None:
    assert preceding_sources(turn(source), 2) == expected
    assert preceding_sources(turn(source), 0) == []


def test_only_short_documents_without_a_title_are_turns() -> None:
    assert preceding_sources(turn("faq/7", title="Refunds"), 2) == []
    assert preceding_sources(turn("chat/7", "word " * 2 * SHORT), 2) == []
    assert preceding_sources(Document("note/7", "", "Buy milk."), 2) == []
    for other in ({"file": True}, {"of": "x"}, {"file_hash": "h", "content": ""}):
        assert preceding_sources(replace(turn("chat/7"), **other), 2) == []


async def test_turns_of_the_call_come_before_a_turn() -> None:
    turns = [turn("chat/1", "When?"), turn("chat/2"), turn("chat/3", "Great.")]
    found = await with_preceding(turns, None, MemoryStore(), count=2)
    assert [each.preceding for each in found] == [(), ("When?",), ("When?", "Yes, in May!")]
    alone = await with_preceding(turns[2:], None, MemoryStore(), count=2, others=turns)
    assert alone == found[2:]


def test_a_turn_is_embedded_and_searched_with_what_comes_before() -> None:
    text, terms = prepared(replace(turn("chat/2"), preceding=("When do we sail?",)))
    assert text == "When do we sail?\nYes, in May!"
    assert terms == analyzer_for("english").terms("When do we sail?")
    assert prepared(turn("chat/2")) == ("Yes, in May!", [])


def test_of_long_turns_the_end_is_the_context() -> None:
    text, _ = prepared(replace(turn("chat/2"), preceding=("far " * 400, "near " * 100)))
    context = text.removesuffix("\nYes, in May!")
    assert CONTEXT - 2 <= EstimatedTokens().count(context) <= CONTEXT
    assert context.startswith("far") and context.endswith("near")
    long = "word " * (SHORT + 20)
    assert prepared(replace(turn("chat/2", long), preceding=("When?",))) == (long.strip(), [])
