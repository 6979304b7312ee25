"""Texts that cannot be sent are errors of the field that they are in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ability_search.client.search_client import SearchClient
from ability_search.client.tool_client import ToolClient, check_unicode, client_target
from ability_search.config.loader import load_settings
from ability_search.errors import InvalidInput

HALF = "a\ud800b"
NOTE = {"source": "n", "title": "t", "content": "c"}
names = st.text("abc", min_size=1)
values = st.recursive(
    st.none() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)
steps = st.lists(names | st.integers(0, 2), min_size=1, max_size=5)

Use = Callable[[SearchClient], Awaitable[Any]]
USES: list[tuple[str, Use]] = [
    ("query", lambda client: client.query("notes", HALF)),
    ("collection.1", lambda client: client.query(["notes", HALF], "words")),
    ("filter.title", lambda client: client.query("notes", "words", filter={"title": HALF})),
    ("filter", lambda client: client.query("notes", "words", filter={HALF: 1})),
    ("queries.0", lambda client: client.query("notes", "words", queries=[HALF])),
    ("chunkId", lambda client: client.similar("notes", HALF)),
    ("content", lambda client: client.index("notes", [NOTE | {"content": HALF}])),
    ("metadata.k", lambda client: client.index("notes", [NOTE | {"metadata": {"k": HALF}}])),
    ("metadata", lambda client: client.index("notes", [NOTE | {"metadata": {HALF: 1}}])),
    ("path", lambda client: client.index_file("notes", f"docs/{HALF}")),
    ("language", lambda client: client.reindex("notes", language=HALF)),
    ("source", lambda client: client.delete("notes", HALF)),
    ("sources.0", lambda client: client.delete("notes", sources=[HALF])),
    ("cursor", lambda client: client.info("notes", cursor=HALF)),
    ("nested.0", lambda client: client.call("another-tool", {"nested": [HALF]})),
]


@pytest.mark.parametrize(("field", "use"), USES, ids=[field for field, _ in USES])
async def test_half_a_character_is_an_error_of_its_field(
    tmp_path: Path, field: str, use: Use
) -> None:
    environ = {"HOME": str(tmp_path), "BROKER_URL": "ws://127.0.0.1:1/kadi"}
    settings = load_settings(environ, tmp_path)
    tools = ToolClient(settings, client_target(settings, environ, None), name="test")
    with pytest.raises((InvalidInput, ValidationError)) as caught:
        await use(SearchClient.over(tools))
    text = str(caught.value)
    assert text.startswith(field) or f"\n{field}\n" in text
    assert "unicode" in text.lower() or field.endswith("Id")


@given(values, steps)
def test_the_path_of_the_broken_text_is_named(value: Any, path: list[str | int]) -> None:
    check_unicode(value)
    broken: Any = HALF
    for step in reversed(path):
        broken = {"x": value, step: broken} if isinstance(step, str) else [value] * step + [broken]
    with pytest.raises(InvalidInput) as caught:
        check_unicode(broken)
    assert caught.value.field == ".".join(map(str, path))
