"""Documents of a call are read as files of their names would be."""

import json
from typing import Any

import pytest

from ability_search.config.schema import Limits
from ability_search.tools import inputs
from ability_search.tools.requests import documents


def read(source: Any, content: Any, **given: Any) -> Any:
    item = {"source": source, "title": "T", "content": content, **given}
    value = inputs.IndexInput.model_validate({"collection": "c", "documents": [item]})
    valid, _ = documents(value, Limits())
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
