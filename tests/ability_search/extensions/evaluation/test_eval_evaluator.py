from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.evaluation.sets import CORPUS, write_set

from ability_search.collection import is_collection_name
from ability_search.config.loader import load_settings
from ability_search.errors import SearchError
from ability_search.extensions.evaluation import evaluator
from ability_search.extensions.evaluation.evaluation_options import EvaluationOptions
from ability_search.extensions.evaluation.evaluator import corpus_collection, index_missing
from ability_search.extensions.evaluation.judged_sets import Dataset, read_dataset
from ability_search.extensions.evaluation.runs import Indexing


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return read_dataset(write_set(tmp_path))


class Client:
    """The tools of a worker; sources come in pages of two, and ``d3`` cannot be indexed."""

    def __init__(self, **collections: Sequence[str]) -> None:
        self.settings = load_settings({}, Path("nowhere"))
        self._collections = collections
        self.sent: list[tuple[list[str], int]] = []

    async def call(
        self, tool: str, tool_input: Mapping[str, Any], *, timeout: float
    ) -> dict[str, Any]:
        if tool == "search-collections":
            return {"collections": [{"name": name} for name in self._collections]}
        assert tool == "search-collection-info"
        sources = self._collections[tool_input["collection"]]
        start = int(tool_input.get("cursor", 0))
        page: dict[str, Any] = {"sources": list(sources[start : start + 2])}
        if start + 2 < len(sources):
            page["nextCursor"] = str(start + 2)
        return page

    async def run_job(
        self, tool: str, tool_input: Mapping[str, Any], *, before: int, **_: Any
    ) -> dict[str, Any]:
        assert (tool, tool_input["collection"]) == ("search-index", "c")
        sources = [document["source"] for document in tool_input["documents"]]
        self.sent.append((sources, before))
        failed = [{"source": each, "error": "no"} for each in sources if each == "d3"]
        return {"added": len(sources) - len(failed), "failed": failed}


async def indexed(client: Any, dataset: Dataset) -> Indexing:
    def unseen(_title: str, _total: int) -> AbstractContextManager[Any]:
        return nullcontext(None)

    fields = {"collection": "c"}
    return await index_missing(client, dataset, fields, EvaluationOptions(), unseen)


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


async def test_only_what_is_missing_is_sent_in_batches(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "BATCH_DOCUMENTS", 1)
    client = Client(c=["d1"])
    done = await indexed(client, dataset)
    assert client.sent == [(["d2"], 0), (["d3"], 1)]
    assert (done.added, done.failed) == (1, [{"source": "d3", "error": "no"}])


async def test_nothing_is_sent_when_all_is_stored(dataset: Dataset) -> None:
    client = Client(c=["of somebody else", *sorted(dataset.sources)])
    done = await indexed(client, dataset)
    assert client.sent == []
    assert (done.added, done.failed) == (0, [])


async def test_a_corpus_of_which_nothing_can_be_indexed_is_an_error(tmp_path: Path) -> None:
    corpus = [{"_id": "d3", "text": "t"}]
    dataset = read_dataset(write_set(tmp_path, corpus, qrels=[("q1", "d3", 1)]))
    with pytest.raises(SearchError, match="no document could be indexed: no"):
        await indexed(Client(other=["a"]), dataset)
