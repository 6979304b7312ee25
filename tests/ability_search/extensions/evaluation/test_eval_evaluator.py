from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.extensions.evaluation.sets import CORPUS, write_set

from ability_search.bounded_batches import batches
from ability_search.collection import is_collection_name
from ability_search.errors import SearchError
from ability_search.extensions.evaluation.evaluator import (
    content_bytes,
    corpus_collection,
    index_missing,
    stored_sources,
)
from ability_search.extensions.evaluation.judged_sets import Dataset, read_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return read_dataset(write_set(tmp_path))


class Tools:
    """The two tools that tell what is stored; sources come in pages of two."""

    def __init__(self, **collections: Sequence[str]) -> None:
        self._collections = collections
        self.calls = 0

    async def call(self, tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if tool == "search-collections":
            return {"collections": [{"name": name} for name in self._collections]}
        assert tool == "search-collection-info"
        sources = self._collections[tool_input["collection"]]
        start = int(tool_input.get("cursor", 0))
        page: dict[str, Any] = {"sources": list(sources[start : start + 2])}
        if start + 2 < len(sources):
            page["nextCursor"] = str(start + 2)
        return page


class Index:
    """Records the documents sent to be indexed."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[str], int]] = []

    async def send(self, batch: Sequence[Mapping[str, Any]], done: int) -> dict[str, Any]:
        self.sent.append(([document["source"] for document in batch], done))
        failed = [{"source": d["source"], "error": "no"} for d in batch if d["source"] == "d3"]
        return {"added": len(batch) - len(failed), "failed": failed}


def test_the_name_follows_the_texts_and_how_they_are_indexed(
    tmp_path: Path, dataset: Dataset
) -> None:
    name = corpus_collection("set", dataset, {"model": "m", "size": 500})
    assert name == corpus_collection("set", dataset, {"size": 500, "model": "m"})
    assert name != corpus_collection("set", dataset, {"model": "m", "size": 100})
    other = read_dataset(write_set(tmp_path, [*CORPUS, {"_id": "x", "text": "t"}]))
    assert name != corpus_collection("set", other, {"model": "m", "size": 500})


def test_the_name_is_one_for_a_collection_however_long_the_directory_s(dataset: Dataset) -> None:
    assert is_collection_name(corpus_collection("a" * 64, dataset, {}))


async def test_all_pages_of_what_is_stored_are_read() -> None:
    tools = Tools(c=["a", "b", "c", "d", "e"])
    assert await stored_sources(tools.call, "c") == {"a", "b", "c", "d", "e"}
    assert tools.calls == 4


async def test_nothing_is_stored_of_a_collection_that_is_not_there() -> None:
    tools = Tools(other=["a"])
    assert await stored_sources(tools.call, "c") == set()
    assert tools.calls == 1


async def test_only_what_is_missing_is_sent_in_batches(dataset: Dataset) -> None:
    index = Index()
    done = await index_missing(dataset, {"d1"}, index.send, most=1, most_bytes=1000)
    assert index.sent == [(["d2"], 0), (["d3"], 1)]
    assert (done.added, done.failed) == (1, [{"source": "d3", "error": "no"}])


async def test_nothing_is_sent_when_all_is_stored(dataset: Dataset) -> None:
    index = Index()
    stored = {*dataset.sources, "of somebody else"}
    done = await index_missing(dataset, stored, index.send, most=1, most_bytes=1000)
    assert index.sent == []
    assert (done.added, done.failed) == (0, [])


async def test_a_corpus_of_which_nothing_can_be_indexed_is_an_error(dataset: Dataset) -> None:
    async def send(batch: Sequence[Mapping[str, Any]], done: int) -> dict[str, Any]:
        return {"added": 0, "failed": [{"source": "d1", "error": "no room"}]}

    with pytest.raises(SearchError, match="no document could be indexed: no room"):
        await index_missing(dataset, set(), send, most=9, most_bytes=1000)


@given(st.lists(st.text(max_size=20)), st.integers(1, 5), st.integers(1, 40))
def test_batches_keep_all_documents_in_order_within_their_bounds(
    texts: list[str], most: int, most_bytes: int
) -> None:
    documents = [{"source": str(n), "content": text} for n, text in enumerate(texts)]
    cut = list(batches(iter(documents), content_bytes, most=most, most_bytes=most_bytes))
    assert [document for batch in cut for document in batch] == documents
    for batch in cut:
        assert 1 <= len(batch) <= most
        size = sum(len(document["content"].encode()) for document in batch)
        assert size <= most_bytes or len(batch) == 1
