"""Escaped characters: words are found, and neither lines nor structure change."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.formats.escapes import unescaped
from ability_search.text.analyzer import analyzer_for
from ability_search.text.chunkers.strategies import chunk

WORDS = st.lists(st.sampled_from(["Müller", "北京", "naïve", "Привет", "😀", "\\u00fc", "C:\\new"]))
VALUES = st.recursive(
    st.text() | WORDS.map("\n".join),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(VALUES, st.sampled_from([None, 1]))
def test_json_keeps_its_lines_and_its_values(value: Any, indent: int | None) -> None:
    text = json.dumps([value], indent=indent)
    read = unescaped(text, format="json")

    assert read.count("\n") == text.count("\n")
    assert json.loads(read) == json.loads(
        text.replace("\\\\", "\0").replace("\\n", " ").replace("\\r", " ").replace("\\t", " ")
        .replace("\0", "\\\\")
    )  # fmt: skip
    assert unescaped(read, format="json") == read
    assert all(each.content == read[each.start : each.end] for each in chunk(read, format="json"))


@given(st.dictionaries(st.sampled_from("abc"), WORDS.map(" ".join), min_size=1))
def test_yaml_keeps_its_values(value: Any) -> None:
    text = yaml.dump(value)
    read = unescaped(text, format="code", language="yaml")

    assert yaml.safe_load(read) == value
    assert read.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("name", "format", "language", "text"),
    [
        ("a.json", "json", None, '{"name": "M\\u00fcller", "note": "one\\nsecond \\u5317\\u4eac"}'),
        ("inline", None, None, '{"name": "M\\u00fcller", "note": "one\\nsecond \\u5317\\u4eac"}'),
        ("a.yaml", "code", "yaml", 'name: "M\\xFCller"\nnote: "second \\u5317\\u4eac"'),
        ("a.toml", "code", "toml", 'name = "M\\u00fcller"\nnote = "second \\U00005317\\u4eac"'),
        ("a.properties", None, None, "name=M\\u00fcller\nnote=second \\u5317\\u4eac"),
        ("a.md", "markdown", None, "M&uuml;ller second &#x5317;&#20140;"),
    ],
)
def test_words_with_escapes_are_terms(
    name: Any, format: str | None, language: str | None, text: Any
) -> None:
    read = unescaped(text, name=name, format=format, language=language)

    expected = analyzer_for().terms("Müller second 北京")
    assert set(expected) <= set(analyzer_for().terms(read))
    assert read.count("\n") == text.count("\n")


def test_code_is_not_decoded() -> None:
    python = 'print("\\u00fc")'
    markdown = "`&uuml;`\n\n```html\n&uuml;\n```\n\n    &uuml;\n\n&lt;b&gt; &amp;"

    assert unescaped(python, format="code", language="python") == python
    assert unescaped(markdown, format="markdown") == markdown
    assert unescaped("a: '\\u00fc' # \"\\u00fc\"", language="yaml") == "a: '\\u00fc' # \"\\u00fc\""
