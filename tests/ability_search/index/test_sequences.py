"""Context of passages: the turns before a turn, the neighbours of prose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.ability_search.index.ports_of import index_ports, job_of

from ability_search.collection import Context, Recipe
from ability_search.config.loader import load_settings
from ability_search.documents import Document
from ability_search.index.index_calls import recipe_for
from ability_search.index.index_fields import IndexFields
from ability_search.index.preparation import prepare
from ability_search.index.sequences import CONTEXT, SHORT, preceding_sources, with_preceding
from ability_search.store.memory import MemoryStore
from ability_search.text.analyzer import analyzer_for
from ability_search.text.token_counter import EstimatedTokens

RECIPE = Recipe("auto", 500, 50, "english", "m")


def turn(source: str, content: str = "Yes, in May!", title: str = "") -> Document:
    return Document(source, title, content, {"speaker": "Ann"})


def prepared(document: Document) -> tuple[str, list[str]]:
    found = prepare(document, RECIPE, count=EstimatedTokens())
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


PARTS = {part: "".join(f"{part} {n} says so.\n\n" for n in range(4)) for part in "AB"}
PROSE = Document("guide", "", "".join(PARTS.values()), format="text")
SECTIONS = replace(
    PROSE, format="markdown", content="".join(f"# {part}\n\n{PARTS[part]}" for part in PARTS)
)


def contexts(document: Document, context: Context | None) -> dict[str, str]:
    """Return the context of each passage by its last line, of chunks of one paragraph each."""
    recipe = Recipe("auto", 8, 0, "english", "m", context=context)
    found = prepare(document, recipe, count=EstimatedTokens())
    return {each.content.splitlines()[-1]: each.context for each in found.passages}


def test_prose_has_no_context_by_default() -> None:
    assert set(contexts(PROSE, None).values()) == {""}
    assert contexts(PROSE, 0) == contexts(PROSE, None)


def test_prose_has_its_neighbours_as_context() -> None:
    found = contexts(PROSE, 1)
    assert found["A 2 says so."] == "A 1 says so.\nA 3 says so."
    assert found["B 3 says so."] == "B 2 says so."
    two = contexts(PROSE, 2)["A 3 says so."]
    assert two == "A 1 says so.\n\nA 2 says so.\nB 0 says so.\n\nB 1 says so."


def test_prose_has_the_beginning_of_its_section_as_context() -> None:
    found = contexts(SECTIONS, "section")
    assert found["A 3 says so."].startswith("# A")
    assert found["B 3 says so."].startswith("# B")
    assert [context for context in found.values() if not context] == [""] * 2


def test_of_long_neighbours_the_nearest_text_is_the_context() -> None:
    text = "\n\n".join(f"{word} " * 300 for word in ("far", "near", "close"))
    found = prepare(
        Document("long", "", text, format="text"),
        Recipe("auto", 400, 0, "english", "m", context=1),
        count=EstimatedTokens(),
    )
    before, after = found.passages[1].context.splitlines()
    assert set(before.split()) == {"far"} and set(after.split()) == {"close"}
    assert CONTEXT - 4 <= EstimatedTokens().count(f"{before} {after}") <= CONTEXT


def test_source_code_has_no_neighbours_as_context() -> None:
    code = "\n\n".join(f"def f{n}():\n    return {n}" for n in range(5))
    assert set(contexts(Document("a.py", "", code, format="code"), 2).values()) == {""}


def test_a_number_of_neighbours_applies_to_turns_too() -> None:
    text = "\n".join(f"[-] Ann: number {n}" for n in range(4))
    chat = Document("chat", "", text, format="conversation")
    assert contexts(chat, None)["Ann: number 3"] == "Ann: number 1\nAnn: number 2"


def test_a_number_is_also_that_of_turns_and_leaves_room_in_the_model(tmp_path: Path) -> None:
    settings = load_settings({"SEARCH_EMBEDDING_MAX_TOKENS": "256"}, tmp_path)
    ports = replace(index_ports(MemoryStore(), now=0), settings=settings)

    def chosen(context: Context | None) -> tuple[int, Context | None, int]:
        recipe = recipe_for(IndexFields(context=context), None, settings)
        return job_of(ports, None, recipe).turns, recipe.context, recipe.chunk_size

    assert chosen(1) == (1, 1, 256 - CONTEXT)
    assert chosen("section") == (2, "section", 256 - CONTEXT)
    assert chosen(None) == (2, None, 256)
