"""Kinds extracted from a document, and from a language model's answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.documents import KINDS, Document
from ability_search.extensions.kinds.chat_kinds import (
    MOST_CHARACTERS,
    MOST_PARTS,
    parts,
    read_answer,
)
from ability_search.extensions.kinds.extracted_kinds import LONGEST, extracted
from ability_search.extensions.kinds.keyphrases import keywords
from ability_search.text.chunkers.strategies import chunk

GUIDE = """# Guide

[![build](https://example.org/b.svg)](https://example.org)

## Table of contents

- The first part is about installing.

## Install

It needs **Python** and a [broker](https://example.org "The broker"). It runs on any machine:

```python
this is code, not a sentence at all. Neither is this.
```

| a table | is no prose at all here. |

1. Get the broker from its maker.
2. Start it before anything else.

## Limits

Version 3.11 is the least. Nothing else is needed, e.g. no compiler.
"""


def said(kind: str, text: str, **about: Any) -> list[str]:
    document = Document("s", about.pop("title", ""), text, **about)
    passages = chunk(text, max_tokens=200, format=document.format, language=document.language)
    return [statement.text for statement in extracted(kind, document, passages)]


def test_the_kind_title_has_the_title_and_distinct_headings() -> None:
    assert said("title", GUIDE, title="The guide", format="markdown") == [
        "The guide\nGuide\nTable of contents\nInstall\nLimits"
    ]
    assert said("title", "No heading here.", title="Alone") == ["Alone"]
    assert said("title", "Neither title nor heading.") == []


def test_a_summary_has_the_first_sentences_without_boilerplate() -> None:
    (summary,) = said("summary", GUIDE, format="markdown")
    assert summary == (
        "It needs Python and a broker. It runs on any machine: Get the broker from its maker."
    )


def test_a_summary_that_is_the_whole_text_is_dropped() -> None:
    assert said("summary", "One sentence of a few words.\n") == []
    assert said("summary", "検索は意味で行われます。\n\n語でも行われます、いつも。") == []


def test_propositions_are_sentences_only() -> None:
    found = said("propositions", GUIDE, format="markdown")
    assert found == [
        "The first part is about installing.",
        "It needs Python and a broker.",
        "It runs on any machine:",
        "Get the broker from its maker.",
        "Start it before anything else.",
        "Version 3.11 is the least.",
        "Nothing else is needed, e.g. no compiler.",
    ]
    document = Document("s", "", GUIDE, format="markdown")
    passages = chunk(GUIDE, format="markdown", max_tokens=200)
    last = extracted("propositions", document, passages)[-1]
    assert last.breadcrumb == "Guide > Limits"


def test_a_full_stop_between_spaces_ends_a_sentence() -> None:
    text = "the wing was tested in a slipstream . the lift increased with the angle ."
    assert said("propositions", text) == [
        "the wing was tested in a slipstream .",
        "the lift increased with the angle .",
    ]


@pytest.mark.parametrize("about", [{"format": "code", "language": "python"}, {"format": "json"}])
def test_code_and_data_have_keywords_but_no_propositions(about: dict[str, str]) -> None:
    text = '{"alpha_rate": "This is a sentence of words. And another one here."}'
    assert said("summary", text, **about) == said("propositions", text, **about) == []
    assert "alpha_rate" in said("keywords", text, **about)[0]


def test_keywords_are_frequent_phrases_that_also_occur_outside_longer_ones() -> None:
    text = (
        "The vector index finds neighbours. A vector index is built at once, and the vector index"
        " of a small collection is not asked. Its neighbours are compared."
    )
    found = keywords(text)
    assert found[0] == "vector index"
    assert "neighbours" in found
    assert not {"vector", "index", "the"} & set(found)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("向量数据库很快。倒排索引和向量数据库结合，倒排索引很小。", ["向量数据库", "倒排索引"]),
        ("ベクトル検索は意味で探します。ベクトル検索と語の検索です。", ["ベクトル検索"]),
        ("C++ and ERR_4012 in snake_case; C++ again, ERR_4012 again.", ["C++", "ERR_4012"]),
    ],
)  # fmt: skip
def test_keywords_need_no_spaces_between_words(text: str, phrases: list[str]) -> None:
    assert set(phrases) <= set(keywords(text)[:3])


def test_text_without_words_has_no_keywords() -> None:
    assert keywords("") == keywords("--- 12 34 !!! a I") == keywords("the of and") == []


@given(text=st.text(max_size=400) | st.text("ab .\n#-*`|漢字カナかな12", max_size=400))
def test_kinds_of_any_text_are_bounded(text: str) -> None:
    for kind in KINDS:
        for statement in said(kind, text, title=text[:10]):
            assert statement.strip()
            assert len(statement) <= (LONGEST + 1) * 3 or kind == "keywords"
    assert len(keywords(text)) <= 12


def test_list_marks_and_introductions_are_removed_from_an_answer() -> None:
    answer = 'Here are the facts:\n\n- "Cats sleep."\n2. **Dogs bark.**\n\n---\n- Cats sleep.'
    assert [each.text for each in read_answer("propositions", answer)] == [
        "Cats sleep.",
        "Dogs bark.",
    ]
    assert [each.text for each in read_answer("keywords", "cats\n* dogs")] == ["cats, dogs"]
    assert [each.text for each in read_answer("title", "Title:\nOn cats\nOn dogs")] == ["On cats"]
    assert [each.text for each in read_answer("title", "```markdown\n# Cats\n```")] == ["# Cats"]
    assert [each.text for each in read_answer("keywords", "**Keywords:**\ncats\nCats")] == ["cats"]
    assert read_answer("summary", "\n...\n") == []


@given(answer=st.text(max_size=3000), kind=st.sampled_from(KINDS))
def test_any_answer_is_bounded_text(answer: str, kind: str) -> None:
    found = read_answer(kind, answer)
    assert len(found) <= 32
    assert all(each.text.strip() and len(each.text) <= 1500 for each in found)


@pytest.mark.parametrize("size", [100, 500, 5_000])
@pytest.mark.parametrize("strategy", ["auto", "sliding-window"])
def test_all_of_a_document_is_sent_to_the_model_in_parts(size: int, strategy: str) -> None:
    text = "".join(f"Sentence number {n} is here.\n\n" for n in range(3_000))
    passages = chunk(text, max_tokens=size, strategy=strategy)
    found = parts(Document("s", "Title", text), passages)
    assert all(len(part.text) <= MOST_CHARACTERS for part in found)
    assert all(part.text.startswith("Title\n\n") for part in found)
    assert sorted({index for part in found for index in part.passages}) == [*range(len(passages))]
    sent = "".join(part.text for part in found)
    assert all(f"number {n} is" in sent for n in range(3_000)) or size == 5_000
    assert len(found) < 1.5 * len(text) / MOST_CHARACTERS


def test_the_parts_of_a_document_are_bounded() -> None:
    text = "word " * (MOST_PARTS * MOST_CHARACTERS // 4)
    assert len(parts(Document("s", "", text), chunk(text))) == MOST_PARTS
