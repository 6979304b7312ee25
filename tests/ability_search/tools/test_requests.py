"""Documents of a call are read as files of their names would be; large calls are known as such."""

import json
from typing import Any

import pytest

from ability_search.config.schema import Limits
from ability_search.extensions.formats.sent_documents import read_document
from ability_search.tools import inputs
from ability_search.tools.requests import documents, work_of


def read(source: Any, content: Any, **given: Any) -> Any:
    item = {"source": source, "title": "T", "content": content, **given}
    value = inputs.IndexInput.model_validate({"collection": "c", "documents": [item]})
    valid, _ = documents(value, Limits(), [read_document])
    return valid[0]


@pytest.mark.parametrize(
    ("source", "format", "language"),
    [
        ("src/auto.py", "code", "python"),
        ("https://example.org/a/main.RS?raw=1", "code", "rust"),
        ("https://docs.rs", None, None),
        ("notes.md", "markdown", None),
        ("paper.pdf", None, None),
        ("readme", None, None),
    ],
)
def test_suffix_of_a_source_is_its_format(source: Any, format: Any, language: Any) -> None:
    found = read(source, "# comment\nx = 1\n")

    assert (found.format, found.language) == (format, language)


def test_given_format_is_kept() -> None:
    assert read("auto.py", "text", format="markdown").format == "markdown"
    assert read("auto.py", "text", file_hash="0" * 64).format is None


def test_escapes_of_json_are_decoded_inline() -> None:
    assert "北京" in read("anything", json.dumps({"name": "北京"})).content


SMALL = 400
"""Work up to which calls do not wait for each other."""
NESTED: dict[str, Any] = {"a": 1}
for _ in range(5_000):
    NESTED = {"$not": NESTED}


@pytest.mark.parametrize(
    ("given", "large"),
    [
        ({}, False),
        ({"limit": 100, "explain": True}, False),
        ({"queries": ["other words"] * 7}, False),
        ({"collection": "*"}, False),
        ({"filter": {"$or": [{"a": n} for n in range(20)]}}, False),
        ({"filter": NESTED}, False),
        ({"limit": 1000}, True),
        ({"offset": 900}, True),
        ({"limit": 100, "queries": ["other words"] * 7}, True),
        ({"collection": [f"c{n}" for n in range(20)]}, True),
        ({"limit": 100, "collection": "*"}, True),
        ({"sources": [f"a{n}*/**" for n in range(100)]}, True),
        ({"filter": {"$or": [{"a": {"$contains": f"{n}"}} for n in range(120)]}}, True),
        ({"query": "words " * 1_000}, True),
    ],
)
def test_work_tells_large_queries_from_small_ones(given: dict[str, Any], large: bool) -> None:
    value = inputs.QueryInput.model_validate({"collection": "c", "query": "words", **given})
    assert (work_of(value) > SMALL) == large


def test_work_of_other_calls_is_that_of_their_hits() -> None:
    similar = inputs.SimilarInput.model_validate(
        {"collection": "c", "chunkId": "c:a:0", "limit": 1000}
    )
    assert work_of(similar) > SMALL
    assert work_of(inputs.CollectionInfoInput(collection="c")) == 0
