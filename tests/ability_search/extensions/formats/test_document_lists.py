"""JSON files that are lists of documents, and those that only look like one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract

BOUNDS = Bounds(text=1000, unpacked=1000)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
WORDS = st.sampled_from(["cats", "\u00fcber", "\u5317\u4eac"])
OTHERS = st.dictionaries(WORDS.map("x-{}".format), st.integers() | TEXTS | st.none(), max_size=2)
LISTS = st.lists(
    st.builds(
        lambda source, content, others, more: {
            **others,
            "source": source,
            "content": f"{content}.",
            **more,
        },
        TEXTS.filter(str.strip),
        WORDS,
        OTHERS,
        st.fixed_dictionaries({}, optional={"title": st.none() | WORDS, "metadata": OTHERS}),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each["source"],
)


def read(value: Any, **options: Any) -> Extracted:
    return extract("list.json", json.dumps(value, **options).encode(), "json", BOUNDS)


@given(LISTS, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_each_object_is_a_document_with_its_own_source(
    values: list[dict[str, Any]], ascii_only: bool, indent: int | str | None
) -> None:
    found = read(values, ensure_ascii=ascii_only, indent=indent)
    assert (found.text.strip(), found.unread) == ("", ())
    for value, (_, child) in zip(values, found.children, strict=True):
        assert (child.source, child.text) == (value["source"], value["content"])
        assert child.title == (value.get("title") or value["source"])
        others = {name: each for name, each in value.items() if name.startswith("x-")}
        assert child.metadata == {**others, **(value.get("metadata") or {})}


LISTED = [{"source": "a", "title": "A", "content": "One."}, {"source": "b", "content": "Two."}]


@pytest.mark.parametrize(
    "value",
    [
        {"documents": LISTED},
        LISTED[0],
        [*LISTED, LISTED[0]],
        [*LISTED, "text"],
        [*LISTED, {"source": "c"}],
        [*LISTED, {"source": " ", "content": "c"}],
        [*LISTED, {"source": 1, "content": "c"}],
        [*LISTED, {"source": "c", "content": None}],
        [*LISTED, {"source": "c", "content": "c", "title": 1}],
        [*LISTED, {"source": "c", "content": "c", "metadata": []}],
    ],
)
def test_json_of_another_shape_is_read_as_before(value: Any) -> None:
    """Also a list of which one object is no document, or has the source of another."""
    found = read(value)
    assert (found.children, found.text) == ((), json.dumps(value))


def test_a_document_that_cannot_be_read_is_named_and_the_others_are_read() -> None:
    values = [
        {"source": "a", "content": " "},
        {"source": "b", "content": "x" * 1001},
        {"source": "c" * 1025, "content": "text"},
        {"source": "d", "content": "text"},
    ]
    found = read(values)
    assert [child.source for _, child in found.children] == ["d"]
    assert found.unread == (
        ("document=1", "empty"),
        ("document=2", "more text than the 1000 bytes allowed (max_document_bytes)"),
        ("document=3", "its source is longer than 1024 characters"),
    )
    with pytest.raises(Unreadable, match=r"\Aempty\Z"):
        read(values[:1])


def test_markdown_in_a_document_gives_title_and_metadata() -> None:
    ((_, child),) = read([{"source": "a.md", "content": "---\ntags: [x]\n---\n# On A"}]).children
    assert (child.title, child.format, child.metadata) == ("On A", "markdown", {"tags": ["x"]})
    ((_, code),) = read([{"source": "a.py", "content": "# no heading"}]).children
    assert (code.title, code.format, code.language) == ("a.py", "code", "python")
