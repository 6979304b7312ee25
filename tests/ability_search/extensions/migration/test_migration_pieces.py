"""Rows of the earlier ability, which may be anything."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from ability_search.extensions.migration.legacy_chunks import (
    Piece,
    Unmovable,
    assembled,
    read_piece,
)
from ability_search.extensions.migration.survey import new_names
from ability_search.text.chunkers.strategies import joined

ROW = {
    "rid": "#1:0",
    "chunkId": "docs:a:b:7",
    "collection": "docs",
    "source": "a:b",
    "title": "T",
    "content": "Text.",
    "embedding": [3.0, 4.0],
    "metadata": None,
    "chunkIndex": 7,
    "totalChunks": 9,
    "createdAt": None,
}


def piece(**other: Any) -> Piece:
    return read_piece(ROW | other)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (None, {}),
        ({"a": 1, "@type": "d"}, {"a": 1}),
        ('{"a": {"b": [1, "x"]}}', {"a": {"b": [1, "x"]}}),
        ("", {}),
        ("no JSON", {"metadata": "no JSON"}),
        ("[1]", {"metadata": [1]}),
    ],
)
def test_metadata_is_read_however_it_was_written(stored: Any, read: dict[str, Any]) -> None:
    assert piece(metadata=stored).metadata == read


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (None, 0),
        (1_700_000_000_123, 1_700_000_000_123),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("yesterday", 0),
        (True, 0),
    ],
)
def test_times_are_read_however_they_were_written(stored: Any, read: int) -> None:
    assert piece(createdAt=stored).created_at == read


@pytest.mark.parametrize(
    ("stored", "flaw"),
    [
        (None, "no embedding"),
        ([], "no embedding"),
        ("[1, 2", "no embedding"),
        ([1.0, None], "an embedding with values that are not numbers"),
        ([1.0, True], "an embedding with values that are not numbers"),
        ([1e39, 1.0], "an embedding that is not finite"),
        ([0, 0.0], "an embedding of zeros"),
    ],
)
def test_an_embedding_of_no_use_is_named(stored: Any, flaw: str) -> None:
    found = piece(embedding=stored)
    assert (found.vector, found.flaw) == (None, flaw)


def test_embeddings_get_unit_length_and_may_be_written_as_text() -> None:
    for stored in ([3, 4], [3.0, 4.0], "[3, 4]"):
        vector = piece(embedding=stored).vector
        assert vector is not None
        assert vector.tolist() == pytest.approx([0.6, 0.8])


def test_the_number_of_a_chunk_is_in_its_id_too() -> None:
    assert piece(chunkIndex=None).index == 7
    assert piece(title=" ").title == "a:b"
    for wrong, reason in (
        ({"chunkIndex": None, "chunkId": "x"}, "no chunkIndex"),
        ({"collection": ""}, "no collection"),
        ({"source": 3}, "no source"),
        ({"content": "\n"}, "no text"),
        ({"metadata": {"n": 2**80}}, "metadata that cannot be stored"),
    ):
        with pytest.raises(Unmovable, match=reason):
            piece(**wrong)


def test_a_document_is_put_together_of_chunks_that_overlap_or_do_not() -> None:
    text = "The otter swims in the river while the badger sleeps under the hill until dusk."
    parts = [text[:50], text[28:], "the river", text[:10]]
    pieces = [piece(content=part, chunkIndex=number) for number, part in enumerate(parts)]
    document, passages = assembled(pieces, [1, 2, 3, 4])
    assert document.content == "\n\n".join([text, "the river", text[:10]])
    assert [passage.tokens for passage in passages] == [1, 2, 3, 4]
    for passage, part in zip(passages, parts, strict=True):
        assert passage.content == part == document.content[passage.start : passage.end]
    end, rows = 0, []
    for passage in passages:
        lead, overlap = document.content[end : passage.start], max(0, end - passage.start)
        rows.append({"content": passage.content, "lead": lead, "overlap": overlap})
        end = max(end, passage.end)
    assert joined(rows) == document.content


def test_names_stay_where_they_can_and_never_collide() -> None:
    names = ["docs", "my docs", "my/docs", "my-docs", "...", "ä", "x" * 80, "x" * 70]
    found = new_names(names, "")
    assert (found["docs"], found["my-docs"]) == ("docs", "my-docs")
    assert {found["my docs"], found["my/docs"]} == {"my-docs-2", "my-docs-3"}
    assert len(set(found.values())) == len(names)
    assert new_names(reversed(names), "") == found
    assert new_names(["docs"], "ts-") == {"docs": "ts-docs"}


@pytest.mark.slow
def test_the_command_is_there_without_those_of_artifacts() -> None:
    environ = {**os.environ, "SEARCH_EXTENSIONS": "-artifacts"}
    command = [sys.executable, "-m", "ability_search", "--help"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    commands = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert "migrate" in commands
    assert not {"build", "export", "import", "backup", "restore"} & commands
