"""JSON cut between elements."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.documents import Passage
from ability_search.extensions.formats.escapes import looks_like_json
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import EstimatedTokens


def cut(value: object, max_tokens: int, **options: Any) -> list[Passage]:
    text = value if isinstance(value, str) else json.dumps(value, **options)
    passages = chunk(text, format="json", max_tokens=max_tokens)
    assert_sound(text, passages, EstimatedTokens(), max_tokens, overlapping=True)
    return passages


def test_a_short_document_is_one_passage_without_breadcrumb() -> None:
    (passage,) = cut({"a": [1, 2, {"b": None}]}, 500)
    assert passage.breadcrumb == ""


@pytest.mark.parametrize("indent", [None, 2])
def test_small_elements_share_passages_and_stay_whole(indent: int | None) -> None:
    users = [{"id": n, "name": f"user{n}", "tags": ["x, y", "]"]} for n in range(30)]
    passages = cut({"users": users}, 120, indent=indent)
    assert {each.breadcrumb for each in passages} <= {"users", "users[29]"}
    middle = passages[1].content.strip().rstrip(",")
    assert [entry["name"] for entry in json.loads(f"[{middle}]")][0].startswith("user")


def test_the_breadcrumb_is_the_path_of_a_passage() -> None:
    value = {
        "first": 1,
        "odd key": {"list": [{"text": "some words of a longer text here " * 12}, 2, 3]},
        "last": True,
    }
    breadcrumbs = [each.breadcrumb for each in cut(value, 40)]
    assert '["odd key"].list[0].text' in breadcrumbs


def test_json_lines_are_cut_between_values() -> None:
    text = "\n".join(json.dumps({"event": n, "text": "a few words"}) for n in range(30))
    for passage in cut(text, 60):
        for line in passage.content.splitlines():
            assert json.loads(line)["text"] == "a few words"


def test_deep_nesting_and_broken_json_are_cut_as_text() -> None:
    assert len(cut("[" * 5000 + "]" * 5000, 100)) >= 100
    assert len(cut('{"a": [1, 2}' * 100, 50)) > 5
    assert len(cut('"never closed ' * 101, 50)) > 5
    assert len(cut('{"a" 1 2 3 , , ] ' * 3, 50)) >= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', True),
        (" [1, 2]\n", True),
        ('{"a": 1}\n\n{"a": 2}\n', True),
        ("[NaN]", True),
        ('{"a": 1}\n{"a" 2}', False),
        ("{x}", False),
        ("[1, 2", False),
        ("1", False),
        ("", False),
    ],
)
def test_json_and_json_lines_are_recognized(text: str, expected: bool) -> None:
    assert looks_like_json(text) is expected


def test_a_key_that_is_not_a_name_is_quoted_in_the_breadcrumb() -> None:
    text = json.dumps({"a key": {"b": list(range(300))}})
    passages = cut(json.loads(text), 50)
    assert passages[1].breadcrumb == '["a key"].b'
